-- tell_ready
WITH forgotten AS MATERIALIZED (
    SELECT run_id, task
    FROM tasks
    WHERE state = 'ready' AND dispatch_after_ms <= $1
    ORDER BY dispatch_after_ms
    LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks
SET dispatch_after_ms = $2
FROM forgotten
WHERE tasks.run_id = forgotten.run_id AND tasks.task = forgotten.task
RETURNING tasks.run_id AS "run_id!", tasks.task AS "task!"
