-- extend_lease
-- Nothing waits for the disk: a lease that is lost with the server's machine ends early, and the sweepers hold all leases after
-- an outage. The setting applies to this statement's own transaction. The first lease of a process is on the disk before its first
-- claim, because Postgres writes both in order.
-- A process that has no row yet removes the rows of processes that died long ago.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now_ms
    WHERE (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
),
known AS MATERIALIZED (
    SELECT process_leases.until_ms > clock.now_ms AS is_held
    FROM process_leases
    CROSS JOIN clock
    WHERE process_leases.process = $1
),
forgotten AS (
    DELETE FROM process_leases
    USING clock
    WHERE NOT EXISTS (SELECT FROM known) AND process_leases.until_ms < clock.now_ms - $3
)
INSERT INTO process_leases (process, until_ms)
SELECT $1, clock.now_ms + $2
FROM clock
ON CONFLICT (process) DO UPDATE
SET until_ms = excluded.until_ms
RETURNING EXISTS (SELECT FROM known WHERE is_held) AS "was_held!"
