-- tell_ready
-- A task that was published long ago and not claimed is not published again for as long as it has been ready, up to a bound.
WITH forgotten AS MATERIALIZED (
    SELECT run_id, task
    FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NOT NULL AND told_until_ms <= $1 AND run_id <> ALL($4::uuid[])
    ORDER BY told_until_ms
    LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks
SET told_until_ms = greatest($2, $5::bigint + least($5::bigint - tasks.ready_ms, $6::bigint))
FROM forgotten
WHERE tasks.run_id = forgotten.run_id AND tasks.task = forgotten.task
RETURNING tasks.run_id AS "run_id!", tasks.task AS "task!", tasks.lane AS "lane!"
