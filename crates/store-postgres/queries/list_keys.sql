-- list_keys
SELECT id AS "id!", tenant AS "tenant!", created_ms AS "created_ms!", revoked_ms AS "revoked_ms?"
FROM keys
WHERE tenant = $1
ORDER BY created_ms, id
LIMIT $2
