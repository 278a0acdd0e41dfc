-- remove_sums
-- The all-time sum begins at 0 and stays. A caller whose clock is ahead removes nothing early: its time counts only up to this
-- server's time.
DELETE FROM budget_sums
WHERE from_ms > 0
    AND from_ms < (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint) - $2)
