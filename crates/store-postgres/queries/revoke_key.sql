-- revoke_key
UPDATE keys SET revoked_ms = coalesce(revoked_ms, $3) WHERE id = $1 AND tenant = $2
