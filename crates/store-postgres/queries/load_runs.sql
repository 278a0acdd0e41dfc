-- load_runs
-- A run without any event is damaged, not absent: hence the outer join. The order inside of it keeps each run's events a walk
-- along the index, also while the server has no statistics of a table that has just grown and would rather read all of it.
SELECT run_states.run_id AS "run_id!",
    run_states.version AS "version!",
    event.sequence AS "sequence?",
    event.at_ms AS "at_ms?",
    event.format AS "format?",
    event.data AS "data?"
FROM run_states
LEFT JOIN LATERAL (
    SELECT sequence, at_ms, format, data
    FROM run_events
    WHERE run_events.run_id = run_states.run_id
    ORDER BY sequence
) AS event ON TRUE
WHERE run_states.run_id = ANY($1::uuid[])
ORDER BY run_states.run_id, event.sequence
