-- load_runs
-- A run without events is damaged, not absent, hence the outer join. The inner order makes each run's events a walk along the
-- index, even if the server has no statistics of a table that has just grown and would rather scan it.
-- If the caller knows an earlier version of a run, only the commits from that version's last event on are read. That event shows
-- whether the caller's history is the stored one.
SELECT run_states.run_id AS "run_id!",
    run_states.version AS "version!",
    written.first_sequence AS "first_sequence?",
    written.last_sequence AS "last_sequence?",
    written.format AS "format?",
    written.data AS "data?"
FROM unnest($1::uuid[], $2::bigint[]) AS wanted (run_id, known_version)
JOIN run_states ON run_states.run_id = wanted.run_id
LEFT JOIN LATERAL (
    SELECT first_sequence, last_sequence, format, data
    FROM run_events
    WHERE run_events.run_id = run_states.run_id AND last_sequence >= wanted.known_version
    ORDER BY last_sequence
) AS written ON TRUE
ORDER BY run_states.run_id, written.last_sequence
