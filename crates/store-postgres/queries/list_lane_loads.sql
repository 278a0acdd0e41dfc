-- list_lane_loads
-- Reads every ready and running task, of which there are as many as there is work. For metrics and operators.
SELECT lane AS "lane!",
    coalesce(sum(backlog), 0)::bigint AS "backlog!",
    coalesce(sum(published), 0)::bigint AS "published!",
    coalesce(sum(running), 0)::bigint AS "running!",
    min(oldest_ms) AS oldest_ms
FROM (
    SELECT lane, count(*) AS backlog, 0 AS published, 0 AS running, min(ready_ms) AS oldest_ms
    FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NULL
    GROUP BY lane
    UNION ALL
    SELECT lane, 0, count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'running'), min(ready_ms)
    FROM tasks
    WHERE state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL)
    GROUP BY lane
) AS loads
GROUP BY lane
ORDER BY lane
