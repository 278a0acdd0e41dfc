-- read_events
SELECT sequence AS "sequence!", at_ms AS "at_ms!", format AS "format!", data AS "data!"
FROM run_events
WHERE run_id = $1 AND sequence > $2
ORDER BY sequence
LIMIT $3
