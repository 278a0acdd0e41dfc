-- commit
-- Creates runs and appends to others, in one statement, so that all of it waits for the disk once. A run is left out if it or its
-- request id exists already, if it is not at the version that its events follow, or if one of its budgets does not hold what it
-- needs. Most batches are charged to no budget: then the arrays of charges are empty.
-- Rows are locked in one order: the states of runs that are appended to, budget sums, runs that are created; each by key. So batches
-- never wait for each other in a circle. Tasks need no order: a commit writes tasks only of runs whose state it has locked, and
-- other statements that lock tasks (to publish them) wait for nothing while they hold one.
WITH first AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
        AS first (id, tenant, request_id, model, question, accepted_ms, deadline_ms)
),
given AS (
    SELECT *
    FROM unnest($8::uuid[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
                $15::bigint[], $16::bigint[], $17::bigint[], $18::bool[], $19::bigint[], $20::bool[], $21::bool[], $47::bigint[])
        AS given (run_id, version_before, version, state, ended_ms, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd,
                  fallbacks, unsettled, failed_steps, degraded, refused, due_ms)
),
locked AS MATERIALIZED (
    SELECT run_states.run_id
    FROM run_states
    JOIN given ON given.run_id = run_states.run_id AND given.version_before = run_states.version
    ORDER BY run_states.run_id
    FOR NO KEY UPDATE OF run_states
),
writable AS (
    SELECT id AS run_id FROM first
    UNION ALL
    SELECT run_id FROM locked
),
charges AS (
    SELECT charge.*
    FROM unnest($40::uuid[], $41::text[], $42::text[], $43::bigint[], $44::bigint[], $45::bigint[], $46::bool[])
        WITH ORDINALITY AS charge (run_id, payer, period, from_ms, spent, reserved, needs_room, place)
    JOIN writable ON writable.run_id = charge.run_id
),
-- The sums are locked in the order of their keys, and read as they are once locked.
sums AS MATERIALIZED (
    SELECT budget_sums.payer, budget_sums.from_ms, spent_nano_usd, reserved_nano_usd
    FROM budget_sums
    WHERE (budget_sums.payer, budget_sums.from_ms) IN (SELECT payer, from_ms FROM charges)
    ORDER BY budget_sums.payer, budget_sums.from_ms
    FOR NO KEY UPDATE OF budget_sums
),
-- Each commit is judged as if those before it in the batch were written: that may be too strict, and is never too lax. A removed
-- budget has no cap, and the cap of a month does not bound what is charged to a day. Runs of older versions do not name the period
-- of their budget. A sum that does not exist yet cannot be locked: the caller creates it and asks again.
judged AS MATERIALIZED (
    SELECT charges.run_id, charges.payer, charges.from_ms, charges.spent, charges.reserved,
        budgets.cap_nano_usd, sums.spent_nano_usd, sums.reserved_nano_usd,
        NOT charges.needs_room
        OR budgets.cap_nano_usd IS NULL
        OR (sums.payer IS NOT NULL
            AND sums.spent_nano_usd::numeric + sums.reserved_nano_usd
                + sum(greatest(charges.spent::numeric + charges.reserved, 0))
                    OVER (PARTITION BY charges.payer, charges.from_ms ORDER BY charges.place)
                <= budgets.cap_nano_usd
        ) AS fits
    FROM charges
    LEFT JOIN sums ON sums.payer = charges.payer AND sums.from_ms = charges.from_ms
    LEFT JOIN budgets ON budgets.payer = charges.payer AND budgets.period = coalesce(charges.period, budgets.period)
),
fitting AS (
    SELECT run_id FROM writable
    WHERE NOT EXISTS (SELECT FROM judged WHERE judged.run_id = writable.run_id AND NOT judged.fits)
),
created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    SELECT id, tenant, request_id, model, question, accepted_ms
    FROM first
    JOIN fitting ON fitting.run_id = first.id
    ORDER BY tenant, request_id, id
    ON CONFLICT DO NOTHING
    RETURNING id
),
begun AS (
    INSERT INTO run_states (run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd,
                            saved_nano_usd, fallbacks, hedges, unsettled, failed_steps, degraded, refused)
    SELECT given.run_id, version, state, deadline_ms, ended_ms, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks,
        0, unsettled, failed_steps, degraded, refused
    FROM given
    JOIN first ON first.id = given.run_id
    JOIN created ON created.id = given.run_id
    RETURNING run_id
),
appended AS (
    UPDATE run_states
    SET version = given.version,
        state = given.state,
        deadline_ms = given.due_ms,
        ended_ms = given.ended_ms,
        steps = given.steps,
        cost_nano_usd = given.cost_nano_usd,
        wasted_nano_usd = given.wasted_nano_usd,
        saved_nano_usd = given.saved_nano_usd,
        fallbacks = given.fallbacks,
        unsettled = given.unsettled,
        failed_steps = given.failed_steps,
        degraded = given.degraded,
        refused = given.refused
    FROM fitting
    JOIN given ON given.run_id = fitting.run_id
    WHERE run_states.run_id = fitting.run_id AND run_states.version = given.version_before
    RETURNING run_states.run_id
),
written AS (
    SELECT run_id FROM begun
    UNION ALL
    SELECT run_id FROM appended
),
events AS (
    INSERT INTO run_events (run_id, first_sequence, last_sequence, kinds, format, data)
    SELECT new.run_id, first_sequence, last_sequence, kinds, $22, data
    FROM unnest($23::uuid[], $24::bigint[], $25::bigint[], $26::text[], $27::text[])
        AS new (run_id, first_sequence, last_sequence, kinds, data)
    JOIN written ON written.run_id = new.run_id
),
-- A task whose state and claim stay the same keeps its times: the task may have been published since. A task
-- that became ready again within one commit stays ready, from a later time. The outer join leaves out rows that would be locked
-- and not changed; the condition at the end sees the row as it is once it is locked.
changed AS (
    INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
    SELECT new.run_id, new.task, new.state, new.lane, new.tenant, new.ready_ms, new.told_until_ms, new.claim,
        new.process, new.lease_until_ms
    FROM unnest($28::uuid[], $29::text[], $30::text[], $31::text[], $32::text[], $33::bigint[], $34::bigint[], $35::uuid[],
                $36::uuid[], $37::bigint[])
        AS new (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
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
        process = excluded.process,
        lease_until_ms = excluded.lease_until_ms
    WHERE tasks.state <> excluded.state
        OR tasks.claim IS DISTINCT FROM excluded.claim
        OR tasks.ready_ms < excluded.ready_ms
),
-- Tasks that are neither ready nor running any more.
gone AS (
    DELETE FROM tasks
    USING unnest($38::uuid[], $39::text[]) AS final (run_id, task), written
    WHERE written.run_id = final.run_id AND tasks.run_id = final.run_id AND tasks.task = final.task
),
-- No sum goes beyond what its column holds: an error here would refuse every later commit of the payer.
booked AS (
    INSERT INTO budget_sums (payer, from_ms, spent_nano_usd, reserved_nano_usd)
    SELECT payer, from_ms,
        least(greatest(sum(spent), -9223372036854775807), 9223372036854775807)::bigint,
        least(greatest(sum(reserved), -9223372036854775807), 9223372036854775807)::bigint
    FROM judged
    JOIN written ON written.run_id = judged.run_id
    GROUP BY payer, from_ms
    ORDER BY payer COLLATE "C", from_ms
    ON CONFLICT (payer, from_ms) DO UPDATE
    SET spent_nano_usd = least(greatest(
            budget_sums.spent_nano_usd::numeric + excluded.spent_nano_usd, -9223372036854775807), 9223372036854775807)::bigint,
        reserved_nano_usd = least(greatest(
            budget_sums.reserved_nano_usd::numeric + excluded.reserved_nano_usd, -9223372036854775807), 9223372036854775807)::bigint
)
SELECT run_id AS "run_id!", NULL AS "payer?", NULL::bigint AS "cap?", NULL::bigint AS "spent?",
    NULL::bigint AS "reserved?", NULL::bigint AS "charge_spent?", NULL::bigint AS "charge_reserved?"
FROM written
UNION ALL
SELECT run_id, payer, cap_nano_usd, spent_nano_usd, reserved_nano_usd, spent, reserved
FROM judged
WHERE NOT fits
