-- take_tasks
-- A task's turn is the number of its tenant's outstanding tasks in the lane, published or running, plus its position among the
-- tenant's waiting ones. Skips along the index from one tenant to the next, and reads of each no more tasks than could be taken,
-- so a long backlog is not read.
WITH RECURSIVE tenants AS (
    (
        SELECT tenant FROM tasks
        WHERE state = 'ready' AND told_until_ms IS NULL AND lane = $1
        ORDER BY tenant LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT tasks.tenant FROM tasks
        WHERE state = 'ready' AND told_until_ms IS NULL AND lane = $1 AND tasks.tenant > tenants.tenant
        ORDER BY tasks.tenant LIMIT 1
    )
    FROM tenants
    WHERE tenants.tenant IS NOT NULL
),
line AS MATERIALIZED (
    SELECT waiting.run_id, waiting.task, waiting.ready_ms, outstanding.tasks + waiting.place AS place
    FROM tenants
    CROSS JOIN LATERAL (
        SELECT count(*) AS tasks
        FROM (
            SELECT FROM tasks
            WHERE lane = $1 AND tasks.tenant = tenants.tenant
                AND (state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL))
            LIMIT $5
        ) AS counted
    ) AS outstanding
    CROSS JOIN LATERAL (
        SELECT oldest.run_id, oldest.task, oldest.ready_ms, row_number() OVER (ORDER BY oldest.ready_ms) AS place
        FROM (
            SELECT run_id, task, ready_ms FROM tasks
            WHERE state = 'ready' AND told_until_ms IS NULL AND lane = $1 AND tasks.tenant = tenants.tenant
                AND ready_ms <= $2
            ORDER BY ready_ms LIMIT $4
        ) AS oldest
    ) AS waiting
    WHERE tenants.tenant IS NOT NULL
    ORDER BY place, ready_ms
    LIMIT $4
),
-- As arrays, or the planner expects a share of the backlog here and reads all of it.
chosen AS MATERIALIZED (
    SELECT array_agg(run_id) AS runs, array_agg(task) AS tasks, array_agg(place) AS places, array_agg(ready_ms) AS ready_ms
    FROM line
),
-- A second transaction on the same rows skips them. The condition on the backlog differs from the index's, or the planner may
-- look the rows up there: without statistics it assumes that the backlog is short.
taken AS MATERIALIZED (
    SELECT tasks.run_id, tasks.task, candidate.place, candidate.ready_ms
    FROM chosen
    CROSS JOIN LATERAL unnest(chosen.runs, chosen.tasks, chosen.places, chosen.ready_ms)
        AS candidate (run_id, task, place, ready_ms)
    JOIN tasks ON tasks.run_id = candidate.run_id AND tasks.task = candidate.task
    WHERE tasks.state = 'ready' AND num_nulls(tasks.told_until_ms) = 1
    FOR NO KEY UPDATE OF tasks SKIP LOCKED
)
UPDATE tasks
SET told_until_ms = $3
FROM taken
WHERE tasks.run_id = taken.run_id AND tasks.task = taken.task
RETURNING tasks.run_id AS "run_id!", tasks.task AS "task!", taken.place AS "place!", taken.ready_ms AS "ready_ms!"
