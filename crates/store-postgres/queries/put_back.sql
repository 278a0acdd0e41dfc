-- put_back
-- Skips rows that another transaction has locked: waiting here, with other rows locked, could deadlock with a commit. Such a task is
-- being claimed or published; if neither happens, it is published again when its time is over.
WITH refused AS MATERIALIZED (
    SELECT tasks.run_id, tasks.task
    FROM tasks
    JOIN unnest($1::uuid[], $2::text[]) AS given (run_id, task)
        ON given.run_id = tasks.run_id AND given.task = tasks.task
    WHERE tasks.state = 'ready'
    FOR NO KEY UPDATE OF tasks SKIP LOCKED
)
UPDATE tasks
SET told_until_ms = NULL
FROM refused
WHERE tasks.run_id = refused.run_id AND tasks.task = refused.task
