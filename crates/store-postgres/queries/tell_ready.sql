-- tell_ready
WITH forgotten AS MATERIALIZED (
    SELECT run_id, task
    FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NOT NULL AND told_until_ms <= $1
    ORDER BY told_until_ms
    LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks
SET told_until_ms = $2
FROM forgotten
WHERE tasks.run_id = forgotten.run_id AND tasks.task = forgotten.task
RETURNING tasks.run_id AS "run_id!", tasks.task AS "task!", tasks.lane AS "lane!"
