-- list_runs
-- The tenant is not said to be one: a plan that knows it to be most of them would walk all runs by their age, and go on doing so
-- for a tenant that has few.
SELECT runs.id AS "id!",
    tenant AS "tenant!",
    model AS "model!",
    state AS "state!",
    question AS "question!",
    steps AS "steps!",
    cost_nano_usd AS "cost_nano_usd!",
    wasted_nano_usd AS "wasted_nano_usd!",
    saved_nano_usd AS "saved_nano_usd!",
    fallbacks AS "fallbacks!",
    failed_steps AS "failed_steps?",
    degraded AS "degraded?",
    refused AS "refused?",
    accepted_ms AS "accepted_ms!",
    ended_ms AS "ended_ms?"
FROM runs
JOIN run_states ON run_states.run_id = runs.id
WHERE (tenant, runs.id) >= ($1, $2)
    AND (tenant, runs.id) < ($1, $3)
    AND (cardinality($4::text[]) = 0 OR state = ANY ($4::text[]))
    AND ($5::text IS NULL OR split_part(model, '@', 1) = $5)
    AND ($6::text IS NULL OR model = $6)
ORDER BY tenant DESC, runs.id DESC
LIMIT $7
