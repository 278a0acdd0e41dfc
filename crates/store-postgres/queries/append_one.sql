-- append_one
-- As commit.sql, for a single append that is charged to no budget: the most frequent batch where calls take seconds. Preparing a
-- statement this small takes the server less than half of the time, as it has neither joins nor arrays of rows.
WITH appended AS (
    UPDATE run_states
    SET version = $3,
        state = $4,
        deadline_ms = $30,
        ended_ms = $5,
        steps = $6,
        cost_nano_usd = $7,
        wasted_nano_usd = $8,
        saved_nano_usd = $9,
        fallbacks = $10,
        unsettled = $11,
        failed_steps = $12,
        degraded = $13,
        refused = $14
    WHERE run_id = $1 AND version = $2
    RETURNING run_id
),
events AS (
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
    SELECT run_id, $15, $16, $17, $18, $19
    FROM appended
),
-- A task whose state and claim stay the same keeps its times, as in commit.sql.
changed AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
    SELECT appended.run_id, new.task, new.state, new.lane, new.tenant, new.ready_ms, new.told_until_ms, new.claim,
        new.process, new.lease_until_ms
    FROM appended,
        unnest($20::text[], $21::text[], $22::text[], $23::text[], $24::bigint[], $25::bigint[], $26::uuid[], $27::uuid[],
            $28::bigint[])
            AS new (task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
    ON CONFLICT (run_id, task) DO UPDATE
    SET state = excluded.state,
        lane = excluded.lane,
        ready_ms = excluded.ready_ms,
        told_until_ms = excluded.told_until_ms,
        claim = excluded.claim,
        process = excluded.process,
        lease_until_ms = excluded.lease_until_ms
    WHERE tasks.state <> excluded.state
        OR tasks.claim IS DISTINCT FROM excluded.claim
        OR tasks.ready_ms < excluded.ready_ms
),
gone AS (
    DELETE FROM tasks
    USING appended
    WHERE tasks.run_id = appended.run_id AND tasks.task = ANY ($29::text[])
)
SELECT run_id AS "run_id!" FROM appended
