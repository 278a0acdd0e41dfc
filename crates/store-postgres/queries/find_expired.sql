-- find_expired
SELECT run_id AS "run_id!", task AS "task!", claim AS "claim!"
FROM tasks
WHERE state = 'running' AND lease_until_ms <= $1
ORDER BY lease_until_ms
LIMIT $2
