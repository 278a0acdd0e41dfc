-- remove_runs
-- An earlier statement has locked their states, so this one sees everything that was ever written of them.
WITH events AS (DELETE FROM run_events WHERE run_id = ANY($1::uuid[])),
done AS (DELETE FROM tasks WHERE run_id = ANY($1::uuid[])),
ratings AS (DELETE FROM ratings WHERE run_id = ANY($1::uuid[])),
states AS (DELETE FROM run_states WHERE run_id = ANY($1::uuid[]))
DELETE FROM runs WHERE id = ANY($1::uuid[])
