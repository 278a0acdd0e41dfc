-- list_reservations
-- For operators only: reads the sums of all periods that are kept.
SELECT payer AS "payer!", from_ms AS "from_ms!", spent_nano_usd AS "spent!", reserved_nano_usd AS "reserved!"
FROM budget_sums
WHERE reserved_nano_usd > 0
ORDER BY payer, from_ms
LIMIT $1
