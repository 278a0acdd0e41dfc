-- list_actions
SELECT at_ms, operator, action, subject, details FROM operator_actions ORDER BY id DESC LIMIT $1
