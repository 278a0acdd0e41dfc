-- create_charged
-- As create, for runs that are charged to budgets. Budgets are locked before anything is written.
-- In the order of the keys that two writers may contend for, so that they never wait for each other in a circle.
WITH given AS (
    SELECT *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
        AS given (id, tenant, request_id, model, question, accepted_ms, deadline_ms)
),
-- The sums are locked in the order of their keys, and read as they are then. Each commit is judged as if those before it were
-- written: that may be too strict, and is never too lax. A budget that was taken away only counts.
charges AS (
    SELECT charge.*
    FROM unnest($29::uuid[], $30::text[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bool[])
        WITH ORDINALITY AS charge (run_id, payer, from_ms, spent, reserved, needs_room, place)
    JOIN given ON given.id = charge.run_id
),
sums AS MATERIALIZED (
    SELECT budget_sums.payer, budget_sums.from_ms, spent_nano_usd, reserved_nano_usd
    FROM budget_sums
    WHERE (budget_sums.payer, budget_sums.from_ms) IN (SELECT payer, from_ms FROM charges)
    ORDER BY budget_sums.payer, budget_sums.from_ms
    FOR NO KEY UPDATE OF budget_sums
),
judged AS MATERIALIZED (
    SELECT charges.run_id, charges.payer, charges.from_ms, charges.spent, charges.reserved,
        budgets.cap_nano_usd, sums.spent_nano_usd, sums.reserved_nano_usd,
        NOT charges.needs_room
        OR (sums.payer IS NOT NULL AND (
            budgets.cap_nano_usd IS NULL
            OR sums.spent_nano_usd + sums.reserved_nano_usd
                + sum(greatest(charges.spent + charges.reserved, 0))
                    OVER (PARTITION BY charges.payer, charges.from_ms ORDER BY charges.place)
                <= budgets.cap_nano_usd
        )) AS fits
    FROM charges
    LEFT JOIN sums ON sums.payer = charges.payer AND sums.from_ms = charges.from_ms
    LEFT JOIN budgets ON budgets.payer = charges.payer
),
fitting AS (
    SELECT given.*
    FROM given
    WHERE NOT EXISTS (SELECT FROM judged WHERE judged.run_id = given.id AND NOT judged.fits)
),
created AS (
    INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms)
    SELECT id, tenant, request_id, model, question, accepted_ms FROM fitting ORDER BY tenant, request_id, id
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
),
booked AS (
    UPDATE budget_sums
    SET spent_nano_usd = budget_sums.spent_nano_usd + more.spent,
        reserved_nano_usd = budget_sums.reserved_nano_usd + more.reserved
    FROM (
        SELECT payer, from_ms, sum(spent)::bigint AS spent, sum(reserved)::bigint AS reserved
        FROM judged
        JOIN created ON created.id = judged.run_id
        GROUP BY payer, from_ms
    ) AS more
    WHERE budget_sums.payer = more.payer AND budget_sums.from_ms = more.from_ms
)
SELECT id AS "run_id!", NULL AS "payer?", NULL::bigint AS "cap?", NULL::bigint AS "spent?",
    NULL::bigint AS "reserved?", NULL::bigint AS "asked?"
FROM created
UNION ALL
SELECT run_id, payer, cap_nano_usd, spent_nano_usd, reserved_nano_usd, spent + reserved
FROM judged
WHERE NOT fits
