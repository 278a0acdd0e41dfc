-- commit_one
-- As commit.sql, of a batch of one: without joins it takes less than half of the server's time, and where calls take seconds
-- most batches are of one.
WITH created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    SELECT id, tenant, request_id, model, question, accepted_ms
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
        AS first (id, tenant, request_id, model, question, accepted_ms)
    ON CONFLICT DO NOTHING
    RETURNING id
),
begun AS (
    INSERT INTO run_states (run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd,
                            saved_nano_usd, fallbacks, hedges)
    SELECT id, ($10::bigint[])[1], ($11::text[])[1], ($7::bigint[])[1], ($12::bigint[])[1], ($13::bigint[])[1],
        ($14::bigint[])[1], ($15::bigint[])[1], ($16::bigint[])[1], ($17::bigint[])[1], ($18::bigint[])[1]
    FROM created
    RETURNING run_id
),
appended AS (
    UPDATE run_states
    SET version = ($10::bigint[])[1],
        state = ($11::text[])[1],
        ended_ms = ($12::bigint[])[1],
        steps = ($13::bigint[])[1],
        cost_nano_usd = ($14::bigint[])[1],
        wasted_nano_usd = ($15::bigint[])[1],
        saved_nano_usd = ($16::bigint[])[1],
        fallbacks = ($17::bigint[])[1],
        hedges = ($18::bigint[])[1]
    WHERE run_id = ($8::uuid[])[1] AND version = ($9::bigint[])[1]
    RETURNING run_id
),
written AS (
    SELECT run_id FROM begun
    UNION ALL
    SELECT run_id FROM appended
),
events AS (
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
    SELECT written.run_id, first_sequence, last_sequence, kinds, $19, data
    FROM written,
        unnest($20::uuid[], $21::bigint[], $22::bigint[], $23::text[], $24::text[])
            AS new (run_id, first_sequence, last_sequence, kinds, data)
),
-- A task that stays what it was keeps its times, as there.
changed AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    SELECT written.run_id, new.task, new.state, new.lane, new.tenant, new.ready_ms, new.told_until_ms, new.claim,
        new.lease_until_ms
    FROM written,
        unnest($25::uuid[], $26::text[], $27::text[], $28::text[], $29::text[], $30::bigint[], $31::bigint[], $32::uuid[],
               $33::bigint[])
            AS new (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    ORDER BY new.task COLLATE "C"
    ON CONFLICT (run_id, task) DO UPDATE
    SET state = excluded.state,
        lane = excluded.lane,
        ready_ms = excluded.ready_ms,
        told_until_ms = excluded.told_until_ms,
        claim = excluded.claim,
        lease_until_ms = excluded.lease_until_ms
    WHERE tasks.state <> excluded.state
        OR tasks.claim IS DISTINCT FROM excluded.claim
        OR tasks.ready_ms < excluded.ready_ms
),
gone AS (
    DELETE FROM tasks
    USING unnest($34::uuid[], $35::text[]) AS final (run_id, task), written
    WHERE tasks.run_id = written.run_id AND tasks.task = final.task
)
SELECT run_id AS "run_id!" FROM written
