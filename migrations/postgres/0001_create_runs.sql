-- Runs, what happened to them, and what needs doing. The events are the truth; the other columns are what is searched by,
-- and follow from them. Times are milliseconds since the Unix epoch.
--
-- There are no foreign keys: each would be a look-up and a row lock for every commit, and the one statement that writes events
-- and tasks writes them only for runs whose state it has written.
--
-- What is rewritten again and again (`run_states`, `tasks`) is kept narrow and apart from what is only inserted. Its pages have
-- room for the next version of a row, so that an update which changes no indexed column touches no index; and it is vacuumed
-- early, since a queue's dead rows are what makes it slow.

-- What a run was accepted with. Insert only.
CREATE TABLE runs (
    -- Version 7: sorts by the time of acceptance.
    id          uuid   NOT NULL PRIMARY KEY,
    tenant      text   NOT NULL,
    -- The client's own name for the request. Any number of runs have none.
    request_id  text,
    model       text   NOT NULL,
    -- Its beginning, for lists.
    question    text   NOT NULL,
    accepted_ms bigint NOT NULL
);

CREATE UNIQUE INDEX runs_request ON runs (tenant, request_id) WHERE request_id IS NOT NULL;
-- Each tenant's runs by age, for lists.
CREATE INDEX runs_tenant ON runs (tenant, id);

-- How far a run has come.
CREATE TABLE run_states (
    run_id          uuid   NOT NULL PRIMARY KEY,
    -- The sequence number of the last event. Every writer says which one it follows; who comes late is refused.
    version         bigint NOT NULL,
    state           text   NOT NULL,
    deadline_ms     bigint NOT NULL,
    ended_ms        bigint,
    -- What it has come to so far, for lists.
    steps           bigint NOT NULL,
    cost_nano_usd   bigint NOT NULL,
    wasted_nano_usd bigint NOT NULL,
    saved_nano_usd  bigint NOT NULL,
    fallbacks       bigint NOT NULL,
    hedges          bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX run_states_active ON run_states (deadline_ms) WHERE state = 'active';

-- A row for each commit of a run: its events were written together and are read together. Insert only.
CREATE TABLE run_events (
    run_id         uuid     NOT NULL,
    -- The numbers of its events: from 1 over all rows of a run, without gaps.
    first_sequence bigint   NOT NULL,
    last_sequence  bigint   NOT NULL,
    -- The events' names, for people who look.
    kinds          text     NOT NULL,
    -- Which form the events in `data` have.
    format         smallint NOT NULL,
    -- A JSON array of the events, each with its number and its time. Not `jsonb`, which refuses the character NUL that a worker
    -- may write.
    data           text     NOT NULL,
    PRIMARY KEY (run_id, last_sequence)
);

-- A row for each task that is ready or running, of all runs: what waits or has come to its end needs nothing done, and the
-- events know of it. So the table is as long as there is work, however many runs are kept. A ready one is its own
-- message-to-be: either it was told, and whoever finds it past `told_until_ms` publishes it again; or it was not, and is in the
-- backlog of its lane.
CREATE TABLE tasks (
    run_id         uuid NOT NULL,
    task           text NOT NULL COLLATE "C",
    state          text NOT NULL,
    -- Where it waits.
    lane           text NOT NULL COLLATE "C",
    -- Whose run it is of: the backlog is chosen from fairly.
    tenant         text NOT NULL COLLATE "C",
    -- Of a ready task: from when it may be claimed.
    ready_ms       bigint,
    -- Of a ready task that was told.
    told_until_ms  bigint,
    -- Of a running task.
    claim          uuid,
    lease_until_ms bigint,
    PRIMARY KEY (run_id, task)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX tasks_told ON tasks (told_until_ms) WHERE state = 'ready' AND told_until_ms IS NOT NULL;
CREATE INDEX tasks_backlog ON tasks (lane, tenant, ready_ms) WHERE state = 'ready' AND told_until_ms IS NULL;
-- What each tenant has on its way, to be counted; and the running tasks, to be looked through for leases that ran out. Not by
-- `lease_until_ms`, which every sign of life changes. There are no more of them than the lanes have room and executors slots.
CREATE INDEX tasks_outstanding ON tasks (lane, tenant)
WHERE state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL);

-- What tenants think of runs of theirs that have ended.
CREATE TABLE ratings (
    run_id   uuid NOT NULL PRIMARY KEY,
    tenant   text NOT NULL,
    -- From 0 to 1.
    score    double precision NOT NULL,
    comment  text,
    rated_ms bigint NOT NULL
);

-- Each tenant's rated runs by age.
CREATE INDEX ratings_tenant ON ratings (tenant, run_id);

-- A tenant's keys, as their SHA-256: a key itself is shown once and never kept.
CREATE TABLE keys (
    id         text   NOT NULL PRIMARY KEY,
    tenant     text   NOT NULL,
    hash       bytea  NOT NULL,
    created_ms bigint NOT NULL,
    revoked_ms bigint
);

CREATE UNIQUE INDEX keys_hash ON keys (hash);
CREATE INDEX keys_tenant ON keys (tenant, created_ms);

-- How much a tenant or a key may spend in each period.
CREATE TABLE budgets (
    -- `tenant:NAME` or `key:ID`.
    payer        text NOT NULL PRIMARY KEY,
    -- The payer, or whose key it is.
    tenant       text NOT NULL,
    period       text NOT NULL,
    -- None: it is only counted.
    cap_nano_usd bigint
);

CREATE INDEX budgets_tenant ON budgets (tenant, payer);

-- What the runs weigh that were accepted in a period, written by the statements that change it. It outlives the runs, and the
-- budget itself. Runs without a budget have no row here.
CREATE TABLE budget_sums (
    payer             text   NOT NULL COLLATE "C",
    -- The beginning of the period.
    from_ms           bigint NOT NULL,
    spent_nano_usd    bigint NOT NULL,
    reserved_nano_usd bigint NOT NULL,
    PRIMARY KEY (payer, from_ms)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
