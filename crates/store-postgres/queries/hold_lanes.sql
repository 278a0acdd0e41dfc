-- hold_lanes
-- Leases to the holder the lanes that no other process dispatches, and extends its own leases. The rows of other holders are read
-- and not locked. Rows are locked in the order of their keys.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now_ms
),
free AS (
    SELECT wanted.lane, clock.now_ms
    FROM unnest($1::text[]) AS wanted (lane)
    CROSS JOIN clock
    LEFT JOIN lane_dispatchers AS known ON known.lane = wanted.lane
    WHERE known.lane IS NULL OR known.holder = $2 OR known.until_ms <= clock.now_ms
)
INSERT INTO lane_dispatchers (lane, holder, until_ms)
SELECT lane, $2, now_ms + $3
FROM free
ORDER BY lane COLLATE "C"
ON CONFLICT (lane) DO UPDATE
SET holder = excluded.holder,
    until_ms = excluded.until_ms
WHERE lane_dispatchers.holder = excluded.holder OR lane_dispatchers.until_ms <= excluded.until_ms - $3
RETURNING lane AS "lane!"
