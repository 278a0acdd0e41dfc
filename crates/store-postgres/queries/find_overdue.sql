-- find_overdue
-- A caller whose clock is ahead ends nothing early: its time counts only up to this server's time. The deadline of a suspended run
-- is the end of its wait for tool results.
(
    SELECT run_id AS "run_id!"
    FROM run_states
    WHERE state = 'active'
        AND deadline_ms <= (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint))
        AND run_id <> ALL($3::uuid[])
    ORDER BY deadline_ms
    LIMIT $2
)
UNION ALL
(
    SELECT run_id
    FROM run_states
    WHERE state = 'suspended'
        AND deadline_ms <= (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint))
        AND run_id <> ALL($3::uuid[])
    ORDER BY deadline_ms
    LIMIT $2
)
LIMIT $2
