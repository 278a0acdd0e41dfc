-- load_runs
-- A run without events is damaged, not absent, hence the outer join. The inner order makes each run's events a walk along the
-- index, even if the server has no statistics of a table that has just grown and would rather scan it.
SELECT run_states.run_id AS "run_id!",
    run_states.version AS "version!",
    written.first_sequence AS "first_sequence?",
    written.last_sequence AS "last_sequence?",
    written.format AS "format?",
    written.data AS "data?"
FROM run_states
LEFT JOIN LATERAL (
    SELECT first_sequence, last_sequence, format, data
    FROM run_events
    WHERE run_events.run_id = run_states.run_id
    ORDER BY last_sequence
) AS written ON TRUE
WHERE run_states.run_id = ANY($1::uuid[])
ORDER BY run_states.run_id, written.last_sequence
