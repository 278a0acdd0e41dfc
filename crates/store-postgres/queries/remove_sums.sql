-- remove_sums
-- The sum of all time begins at 0 and stays.
DELETE FROM budget_sums WHERE from_ms > 0 AND from_ms < $1
