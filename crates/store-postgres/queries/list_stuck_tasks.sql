-- list_stuck_tasks
-- For operators only: reads all tasks that are ready or running.
SELECT run_id AS "run_id!", task AS "task!", tenant AS "tenant!", lane AS "lane!", stuck AS "stuck!", since_ms AS "since_ms!"
FROM (
    SELECT run_id, task, tenant, lane, 'backlog' AS stuck, ready_ms AS since_ms
    FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NULL AND ready_ms <= $1
    UNION ALL
    SELECT run_id, task, tenant, lane, 'published', ready_ms
    FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NOT NULL AND ready_ms <= $1
    UNION ALL
    SELECT run_id, task, tenant, lane, 'abandoned', until_ms
    FROM (
        SELECT run_id, task, tenant, lane, coalesce(
                (SELECT until_ms FROM process_leases WHERE process_leases.process = tasks.process),
                CASE WHEN process IS NULL THEN lease_until_ms END, 0
            ) AS until_ms
        FROM tasks
        WHERE state = 'running'
    ) AS held
    WHERE until_ms <= $1
) AS stuck
ORDER BY since_ms, run_id, task
LIMIT $2
