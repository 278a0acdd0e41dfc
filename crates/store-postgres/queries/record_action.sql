-- record_action
INSERT INTO operator_actions (at_ms, operator, action, subject, details) VALUES ($1, $2, $3, $4, $5)
