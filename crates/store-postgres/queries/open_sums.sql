-- open_sums
-- Budgets that nobody was charged to yet in their period.
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd)
SELECT DISTINCT payer, from_ms, 0, 0 FROM unnest($1::text[], $2::bigint[]) AS sum (payer, from_ms) ORDER BY payer, from_ms
ON CONFLICT DO NOTHING
