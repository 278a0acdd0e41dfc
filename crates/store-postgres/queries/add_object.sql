-- add_object
INSERT INTO objects (tenant, id, version, body, changed_ms)
VALUES ($1, $2, 1, $3, $4)
ON CONFLICT DO NOTHING
