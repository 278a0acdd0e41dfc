-- extend_lease
-- As extend_leases, of a single lease, and waits for who writes its task: it has nothing locked meanwhile. It does not wait for long:
-- other leases have to be extended after it, or run out.
UPDATE tasks
SET lease_until_ms = greatest(lease_until_ms, $4)
WHERE run_id = $1 AND task = $2 AND claim = $3 AND state = 'running'
    AND (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
    AND (SELECT set_config('lock_timeout', '250ms', TRUE)) IS NOT NULL
