-- list_runs
-- Said of both tables: a plan that walks them side by side begins at the page, not at the newest run.
SELECT runs.id AS "id!",
    tenant AS "tenant!",
    model AS "model!",
    state AS "state!",
    question AS "question!",
    steps AS "steps!",
    cost_nano_usd AS "cost_nano_usd!",
    accepted_ms AS "accepted_ms!",
    ended_ms AS "ended_ms?"
FROM runs
JOIN run_states ON run_states.run_id = runs.id
WHERE runs.id < $1 AND run_states.run_id < $1
ORDER BY runs.id DESC
LIMIT $2
