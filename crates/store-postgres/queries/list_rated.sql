-- list_rated
-- Written like the list of runs, for the same reason.
SELECT run_id AS "run_id!", score AS "score!", comment AS "comment?", rated_ms AS "rated_ms!"
FROM ratings
WHERE tenant <= $1 AND (tenant, run_id) > ($1, $2) AND (tenant, run_id) < ($1, $3)
ORDER BY tenant, run_id
LIMIT $4
