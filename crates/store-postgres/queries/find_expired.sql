-- find_expired
-- The claims of processes that have no lease any more. The index is followed from process to process, so the work grows with the
-- number of processes and of lost claims, not with the number of calls under way. Then come the claims of processes of earlier
-- versions, which have leases of their own.
-- A caller whose clock is ahead ends nothing early: its time counts only up to this server's time.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint) AS now_ms
),
holders AS (
    (
        SELECT process FROM tasks
        WHERE state = 'running' AND process IS NOT NULL
        ORDER BY process LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT tasks.process FROM tasks
        WHERE state = 'running' AND tasks.process > holders.process
        ORDER BY tasks.process LIMIT 1
    )
    FROM holders
    WHERE holders.process IS NOT NULL
),
dead AS (
    SELECT holders.process
    FROM holders
    WHERE holders.process IS NOT NULL
        AND coalesce(
            (SELECT until_ms FROM process_leases WHERE process_leases.process = holders.process), 0
        ) <= (SELECT now_ms FROM clock)
)
SELECT lost.run_id AS "run_id!", lost.task AS "task!", lost.claim AS "claim!"
FROM dead
CROSS JOIN LATERAL (
    SELECT run_id, task, claim
    FROM tasks
    WHERE state = 'running' AND process = dead.process AND run_id <> ALL($3::uuid[])
    LIMIT $2
) AS lost
UNION ALL
SELECT run_id, task, claim
FROM tasks
WHERE state = 'running'
    AND process IS NULL
    AND lease_until_ms <= (SELECT now_ms FROM clock)
    AND run_id <> ALL($3::uuid[])
LIMIT $2
