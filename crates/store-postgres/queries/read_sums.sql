-- read_sums
SELECT sum.place AS "place!", spent_nano_usd AS "spent?", reserved_nano_usd AS "reserved?"
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS sum (payer, from_ms, place)
LEFT JOIN budget_sums ON budget_sums.payer = sum.payer AND budget_sums.from_ms = sum.from_ms
ORDER BY sum.place
