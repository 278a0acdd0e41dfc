-- find_overdue
SELECT run_id AS "run_id!"
FROM run_states
WHERE state = 'active' AND deadline_ms <= $1
ORDER BY deadline_ms
LIMIT $2
