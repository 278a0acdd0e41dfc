-- find_backlogs
-- Skips along the index from one lane to the next, without reading all waiting tasks.
WITH RECURSIVE lanes AS (
    (
        SELECT lane FROM tasks
        WHERE state = 'ready' AND told_until_ms IS NULL
        ORDER BY lane LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT tasks.lane FROM tasks
        WHERE state = 'ready' AND told_until_ms IS NULL AND tasks.lane > lanes.lane
        ORDER BY tasks.lane LIMIT 1
    )
    FROM lanes
    WHERE lanes.lane IS NOT NULL
)
SELECT lane AS "lane!" FROM lanes WHERE lane IS NOT NULL
