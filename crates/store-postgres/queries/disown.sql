-- disown
-- Returns the claims that were not disowned because another transaction has locked their rows. Waiting for these, with other rows
-- locked, could deadlock with a commit, and a heartbeat must not be late.
WITH given AS (
    SELECT run_id, task, claim
    FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS hold (run_id, task, claim)
),
free AS MATERIALIZED (
    SELECT tasks.run_id, tasks.task
    FROM tasks
    JOIN given ON given.run_id = tasks.run_id AND given.task = tasks.task AND given.claim = tasks.claim
    WHERE tasks.state = 'running'
    FOR NO KEY UPDATE OF tasks SKIP LOCKED
),
disowned AS (
    UPDATE tasks
    SET process = NULL, lease_until_ms = 0
    FROM free
    WHERE tasks.run_id = free.run_id AND tasks.task = free.task
)
SELECT tasks.run_id AS "run_id!", tasks.task AS "task!", tasks.claim AS "claim!"
FROM tasks
JOIN given ON given.run_id = tasks.run_id AND given.task = tasks.task AND given.claim = tasks.claim
WHERE tasks.state = 'running'
    AND NOT EXISTS (SELECT FROM free WHERE free.run_id = tasks.run_id AND free.task = tasks.task)
