-- find_unsettled
-- Ended runs that still reserve money. The index has no other runs.
SELECT run_id AS "run_id!"
FROM run_states
WHERE unsettled AND run_id > $1 AND ended_ms <= $2
ORDER BY run_id
LIMIT $3
