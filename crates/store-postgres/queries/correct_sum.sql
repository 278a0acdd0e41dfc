-- correct_sum
INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd)
VALUES ($1, $2, greatest($3::bigint, 0), greatest($4::bigint, 0))
ON CONFLICT (payer, from_ms) DO UPDATE
SET spent_nano_usd = least(greatest(budget_sums.spent_nano_usd::numeric + $3, 0), 9223372036854775807)::bigint,
    reserved_nano_usd = least(greatest(budget_sums.reserved_nano_usd::numeric + $4, 0), 9223372036854775807)::bigint
RETURNING spent_nano_usd, reserved_nano_usd
