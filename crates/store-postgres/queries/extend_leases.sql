-- extend_leases
-- Nothing waits for the disk: a lease that is lost with the server's machine ends early, and the sweepers hold all leases after
-- an outage. The setting applies to this statement's own transaction.
-- Rows that another transaction has locked are left to extend_lease. Waiting here, with other rows locked, could deadlock with a
-- commit, which writes tasks in any order.
WITH held AS MATERIALIZED (
    SELECT tasks.run_id, tasks.task
    FROM tasks
    JOIN unnest($1::uuid[], $2::text[], $3::uuid[]) AS hold (run_id, task, claim)
        ON hold.run_id = tasks.run_id AND hold.task = tasks.task AND hold.claim = tasks.claim
    WHERE tasks.state = 'running' AND (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
    FOR NO KEY UPDATE OF tasks SKIP LOCKED
)
UPDATE tasks
SET lease_until_ms = greatest(tasks.lease_until_ms, $4)
FROM held
WHERE tasks.run_id = held.run_id AND tasks.task = held.task
RETURNING tasks.run_id AS "run_id!", tasks.task AS "task!", tasks.claim AS "claim!"
