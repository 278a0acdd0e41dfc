-- find_key
SELECT id AS "id!", tenant AS "tenant!", created_ms AS "created_ms!", revoked_ms AS "revoked_ms?"
FROM keys
WHERE hash = $1
