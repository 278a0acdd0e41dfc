-- add_key
INSERT INTO keys (id, tenant, hash, created_ms)
SELECT $1, $2, $3, $4
WHERE (SELECT count(*) FROM (SELECT FROM keys WHERE tenant = $2 ORDER BY created_ms LIMIT $5) AS known) < $5
ON CONFLICT DO NOTHING
