-- put_back
-- What somebody else has locked is passed by, for the same reason as in extend_leases: it is being claimed or told of, and if
-- neither comes to pass, it is told of again when its time is over.
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
