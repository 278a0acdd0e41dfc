-- list_open_runs
-- For operators only: reads all runs that have not ended.
SELECT open.run_id AS "run_id!", runs.tenant AS "tenant!", runs.model AS "model!", open.state AS "state!",
    runs.accepted_ms AS "accepted_ms!", open.deadline_ms AS "deadline_ms!", open.cost_nano_usd AS "cost_nano_usd!"
FROM (
    SELECT run_id, state, deadline_ms, cost_nano_usd FROM run_states WHERE state = 'active' AND $1::text IS DISTINCT FROM 'suspended'
    UNION ALL
    SELECT run_id, state, deadline_ms, cost_nano_usd FROM run_states WHERE state = 'suspended' AND $1::text IS DISTINCT FROM 'active'
) AS open
JOIN runs ON runs.id = open.run_id
WHERE open.run_id > $4
    AND ($2::text IS NULL OR runs.tenant = $2)
    AND ($3::bigint IS NULL OR runs.accepted_ms < $3)
ORDER BY open.run_id
LIMIT $5
