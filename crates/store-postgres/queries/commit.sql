-- commit
-- Creates runs and appends to others, in one statement: then all of it waits for the disk once. A run of which something is
-- there already, or that is not at the version that its events follow, is left out.
-- Rows are locked in the order of their keys, what creates before what appends, so that batches never wait for each other in a
-- circle. Tasks need no order: only who has locked a run's state writes its tasks for good, and whoever else locks tasks (to
-- tell of them, to extend leases) waits for nothing while it holds one.
WITH first AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
        AS first (id, tenant, request_id, model, question, accepted_ms, deadline_ms)
),
given AS (
    SELECT *
    FROM unnest($8::uuid[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
                $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[])
        AS given (run_id, version_before, version, state, ended_ms, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd,
                  fallbacks, hedges)
),
created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    SELECT id, tenant, request_id, model, question, accepted_ms FROM first ORDER BY tenant, request_id, id
    ON CONFLICT DO NOTHING
    RETURNING id
),
begun AS (
    INSERT INTO run_states (run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd,
                            saved_nano_usd, fallbacks, hedges)
    SELECT given.run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks,
        hedges
    FROM given
    JOIN first ON first.id = given.run_id
    JOIN created ON created.id = given.run_id
    RETURNING run_id
),
locked AS MATERIALIZED (
    SELECT run_states.run_id
    FROM run_states
    JOIN given ON given.run_id = run_states.run_id AND given.version_before = run_states.version
    ORDER BY run_states.run_id
    FOR NO KEY UPDATE OF run_states
),
appended AS (
    UPDATE run_states
    SET version = given.version,
        state = given.state,
        ended_ms = given.ended_ms,
        steps = given.steps,
        cost_nano_usd = given.cost_nano_usd,
        wasted_nano_usd = given.wasted_nano_usd,
        saved_nano_usd = given.saved_nano_usd,
        fallbacks = given.fallbacks,
        hedges = given.hedges
    FROM locked
    JOIN given ON given.run_id = locked.run_id
    WHERE run_states.run_id = locked.run_id AND run_states.version = given.version_before
    RETURNING run_states.run_id
),
written AS (
    SELECT run_id FROM begun
    UNION ALL
    SELECT run_id FROM appended
),
events AS (
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
    SELECT new.run_id, first_sequence, last_sequence, kinds, $19, data
    FROM unnest($20::uuid[], $21::bigint[], $22::bigint[], $23::text[], $24::text[])
        AS new (run_id, first_sequence, last_sequence, kinds, data)
    JOIN written ON written.run_id = new.run_id
),
-- A task that stays what it was keeps its times: they may have been moved since, by extending the lease or by telling of it. A
-- task that became ready anew within one commit stays ready, from a later time. The outer join leaves out what would be locked
-- and not changed; the condition at the end looks at the row as it is once it is locked.
changed AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    SELECT new.run_id, new.task, new.state, new.lane, new.tenant, new.ready_ms, new.told_until_ms, new.claim,
        new.lease_until_ms
    FROM unnest($25::uuid[], $26::text[], $27::text[], $28::text[], $29::text[], $30::bigint[], $31::bigint[], $32::uuid[],
                $33::bigint[])
        AS new (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
    JOIN written ON written.run_id = new.run_id
    LEFT JOIN tasks AS old ON old.run_id = new.run_id AND old.task = new.task
    WHERE old.run_id IS NULL
        OR old.state <> new.state
        OR old.claim IS DISTINCT FROM new.claim
        OR old.ready_ms < new.ready_ms
    ORDER BY new.run_id, new.task COLLATE "C"
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
-- What is neither ready nor running any more.
gone AS (
    DELETE FROM tasks
    USING unnest($34::uuid[], $35::text[]) AS final (run_id, task), written
    WHERE written.run_id = final.run_id AND tasks.run_id = final.run_id AND tasks.task = final.task
)
SELECT run_id AS "run_id!" FROM written
