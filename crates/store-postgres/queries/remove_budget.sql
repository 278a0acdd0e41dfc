-- remove_budget
DELETE FROM budgets WHERE payer = $1
