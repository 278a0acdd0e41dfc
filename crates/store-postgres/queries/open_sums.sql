-- open_sums
-- Creates the missing sums of budgets in their period, in the order in which commits lock them.
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd)
SELECT payer, from_ms, 0, 0
FROM unnest($1::text[], $2::bigint[]) AS sum (payer, from_ms)
GROUP BY payer, from_ms
ORDER BY payer COLLATE "C", from_ms
ON CONFLICT DO NOTHING
