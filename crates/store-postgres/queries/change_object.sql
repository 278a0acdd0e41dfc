-- change_object
UPDATE objects
SET version = version + 1, body = $3, changed_ms = $4
WHERE tenant = $1 AND id = $2 AND version = $5
