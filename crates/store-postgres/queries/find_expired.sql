-- find_expired
-- A caller whose clock is ahead ends nothing early: its time counts only up to this server's time.
SELECT run_id AS "run_id!", task AS "task!", claim AS "claim!"
FROM tasks
WHERE state = 'running'
    AND lease_until_ms <= (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint))
    AND run_id <> ALL($3::uuid[])
ORDER BY lease_until_ms
LIMIT $2
