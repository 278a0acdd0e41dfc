-- read_events
-- The rows with the events; the first and the last row may contain others too.
SELECT first_sequence AS "first_sequence!", last_sequence AS "last_sequence!", format AS "format!", data AS "data!"
FROM run_events
WHERE run_id = $1 AND last_sequence > $2 AND first_sequence - $3 <= $2
ORDER BY last_sequence
LIMIT $3
