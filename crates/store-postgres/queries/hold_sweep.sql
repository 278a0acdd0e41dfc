-- hold_sweep
-- Gives the holder the turn to sweep if no other process has it, or extends its own. The lanes with a backlog come along, for the
-- processes that do not sweep: from one lane to the next along the index.
-- Processes of versions without leases of processes have a turn of their own, named 'sweep': they find only each other's claims.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now_ms
),
held AS (
    INSERT INTO lane_dispatchers (lane, holder, until_ms)
    SELECT 'sweep processes', $1, clock.now_ms + $2
    FROM clock
    LEFT JOIN lane_dispatchers AS known ON known.lane = 'sweep processes'
    WHERE known.lane IS NULL OR known.holder = $1 OR known.until_ms <= clock.now_ms
    ON CONFLICT (lane) DO UPDATE
    SET holder = excluded.holder,
        until_ms = excluded.until_ms
    WHERE lane_dispatchers.holder = excluded.holder OR lane_dispatchers.until_ms <= excluded.until_ms - $2
    RETURNING lane
),
lanes AS (
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
SELECT
    EXISTS (SELECT FROM held) AS "is_own!",
    ARRAY(SELECT lane FROM lanes WHERE lane IS NOT NULL) AS "backlogs!"
