-- extend_lease
-- As extend_leases, for a single lease. It waits for the writer of its task, because it holds no lock meanwhile. The wait is
-- short: other leases must be extended after it, or they expire.
UPDATE tasks
SET lease_until_ms = greatest(lease_until_ms, $4)
WHERE run_id = $1 AND task = $2 AND claim = $3 AND state = 'running'
    AND (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
    AND (SELECT set_config('lock_timeout', '250ms', TRUE)) IS NOT NULL
