-- create_one
-- As commit.sql, of one run that begins. Where calls take seconds most batches are of one, and for so little the server is busy
-- with making the statement ready: without arrays and joins it takes less than half of its time.
WITH created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING
    RETURNING id, tenant
),
begun AS (
    INSERT INTO run_states (run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd,
                            saved_nano_usd, fallbacks, hedges)
    SELECT id, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16
    FROM created
),
events AS (
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
    SELECT id, $17, $18, $19, $20, $21
    FROM created
),
tasks AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    SELECT created.id, new.task, new.state, new.lane, created.tenant, new.ready_ms, new.told_until_ms, new.claim,
        new.lease_until_ms
    FROM created,
        unnest($22::text[], $23::text[], $24::text[], $25::bigint[], $26::bigint[], $27::uuid[], $28::bigint[])
            AS new (task, state, lane, ready_ms, told_until_ms, claim, lease_until_ms)
)
SELECT id AS "run_id!" FROM created
