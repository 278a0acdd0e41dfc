-- remove_sums
-- The sum of all time begins at 0 and stays. A caller whose clock is ahead removes nothing early: its time counts only as far as this
-- server's has come.
DELETE FROM budget_sums
WHERE from_ms > 0
    AND from_ms < (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint) - $2)
