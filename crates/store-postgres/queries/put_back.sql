-- put_back
WITH refused AS MATERIALIZED (
    SELECT tasks.run_id, tasks.task
    FROM tasks
    JOIN unnest($1::uuid[], $2::text[]) AS given (run_id, task)
        ON given.run_id = tasks.run_id AND given.task = tasks.task
    WHERE tasks.state = 'ready'
    ORDER BY tasks.run_id, tasks.task
    FOR NO KEY UPDATE OF tasks
)
UPDATE tasks
SET told_until_ms = NULL
FROM refused
WHERE tasks.run_id = refused.run_id AND tasks.task = refused.task
