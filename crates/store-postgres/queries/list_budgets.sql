-- list_budgets
SELECT payer AS "payer!", tenant AS "tenant!", period AS "period!", cap_nano_usd AS "cap?"
FROM budgets
WHERE tenant = $1
ORDER BY payer
LIMIT $2
