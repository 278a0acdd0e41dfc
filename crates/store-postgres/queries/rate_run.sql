-- rate_run
-- A removal of the run locks its state first. So it waits for this statement and removes the rating too, or this statement finds
-- no run. The tenant is checked on the row that was found by id.
WITH ended AS (
    SELECT run_states.run_id, runs.tenant
    FROM run_states
    JOIN runs ON runs.id = run_states.run_id
    WHERE run_states.run_id = $1 AND runs.id = $1 AND run_states.ended_ms IS NOT NULL
    FOR SHARE OF run_states
)

INSERT INTO ratings (run_id, tenant, score, comment, rated_ms)
SELECT run_id, tenant, $3, $4, $5 FROM ended WHERE tenant = $2
ON CONFLICT (run_id) DO UPDATE
SET score = excluded.score, comment = excluded.comment, rated_ms = excluded.rated_ms
