-- set_budget
INSERT INTO budgets (payer, tenant, period, cap_nano_usd) VALUES ($1, $2, $3, $4)
ON CONFLICT (payer) DO UPDATE SET period = excluded.period, cap_nano_usd = excluded.cap_nano_usd
