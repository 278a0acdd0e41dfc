-- create
-- In the order of the keys that two writers may contend for, so that they never wait for each other in a circle.
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
        AS given (id, tenant, request_id, model, question, accepted_ms, deadline_ms)
),
created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    SELECT id, tenant, request_id, model, question, accepted_ms FROM given ORDER BY tenant, request_id, id
    ON CONFLICT DO NOTHING
    RETURNING id
),
states AS (
    INSERT INTO run_states (run_id, version, state, steps, cost_nano_usd, deadline_ms, ended_ms)
    SELECT state.run_id, version, state, steps, cost_nano_usd, deadline_ms, ended_ms
    FROM unnest($8::uuid[], $9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[])
        AS state (run_id, version, state, steps, cost_nano_usd, ended_ms)
    JOIN given ON given.id = state.run_id
    JOIN created ON created.id = state.run_id
),
events AS (
    INSERT INTO run_events (run_id, sequence, at_ms, kind, format, data)
    SELECT event.run_id, sequence, at_ms, kind, $14, data
    FROM unnest($15::uuid[], $16::bigint[], $17::bigint[], $18::text[], $19::text[])
        AS event (run_id, sequence, at_ms, kind, data)
    JOIN created ON created.id = event.run_id
),
first_tasks AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    SELECT task.run_id, task, state, lane, task.tenant, ready_ms, told_until_ms, claim, lease_until_ms
    FROM unnest($20::uuid[], $21::text[], $22::text[], $23::text[], $24::text[], $25::bigint[], $26::bigint[], $27::uuid[],
                $28::bigint[])
        AS task (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    JOIN created ON created.id = task.run_id
)
SELECT id AS "id!" FROM created
