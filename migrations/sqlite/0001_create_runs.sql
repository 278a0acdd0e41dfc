-- Runs, what happened to them, and what needs doing. The events are the truth; the other columns are what is searched by,
-- and follow from them. Times are milliseconds since the Unix epoch, ids are UUIDs as 16 bytes.

CREATE TABLE runs (
    -- Version 7: sorts by the time of acceptance.
    id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant          TEXT    NOT NULL,
    -- The client's own name for the request. Any number of runs have none.
    request_id      TEXT,
    model           TEXT    NOT NULL,
    -- Its beginning, for lists.
    question        TEXT    NOT NULL,
    accepted_ms     INTEGER NOT NULL,
    deadline_ms     INTEGER NOT NULL,
    -- The sequence number of the last event. Every writer says which one it follows; who comes late is refused.
    version         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    ended_ms        INTEGER,
    -- What it has come to so far, for lists.
    steps           INTEGER NOT NULL,
    cost_nano_usd   INTEGER NOT NULL,
    wasted_nano_usd INTEGER NOT NULL,
    saved_nano_usd  INTEGER NOT NULL,
    fallbacks       INTEGER NOT NULL,
    hedges          INTEGER NOT NULL,
    UNIQUE (tenant, request_id)
) STRICT;

-- Each tenant's runs by age, for lists.
CREATE INDEX runs_tenant ON runs (tenant, id);
CREATE INDEX runs_active ON runs (deadline_ms) WHERE state = 'active';

-- Insert only.
CREATE TABLE run_events (
    run_id   BLOB    NOT NULL REFERENCES runs (id),
    -- From 1, without gaps.
    sequence INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    -- The event's name, for people who look.
    kind     TEXT    NOT NULL,
    -- Which form `data` has.
    format   INTEGER NOT NULL,
    -- The event as JSON.
    data     TEXT    NOT NULL,
    PRIMARY KEY (run_id, sequence)
) STRICT;

-- A row for each task of each run. A ready one is its own message-to-be: either it was told, and whoever finds it past
-- `told_until_ms` publishes it again; or it was not, and is in the backlog of its lane.
CREATE TABLE tasks (
    run_id         BLOB    NOT NULL REFERENCES runs (id),
    task           TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    -- Where it waits.
    lane           TEXT    NOT NULL,
    -- Whose run it is of: the backlog is chosen from fairly.
    tenant         TEXT    NOT NULL,
    -- Of a ready task: from when it may be claimed.
    ready_ms       INTEGER,
    -- Of a ready task that was told.
    told_until_ms  INTEGER,
    -- Of a running task.
    claim          BLOB,
    lease_until_ms INTEGER,
    PRIMARY KEY (run_id, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_told ON tasks (told_until_ms) WHERE state = 'ready' AND told_until_ms IS NOT NULL;
CREATE INDEX tasks_backlog ON tasks (lane, tenant, ready_ms) WHERE state = 'ready' AND told_until_ms IS NULL;
CREATE INDEX tasks_outstanding ON tasks (lane, tenant)
WHERE state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL);
CREATE INDEX tasks_running ON tasks (lease_until_ms) WHERE state = 'running';

-- What tenants think of runs of theirs that have ended.
CREATE TABLE ratings (
    run_id   BLOB NOT NULL PRIMARY KEY REFERENCES runs (id),
    tenant   TEXT NOT NULL,
    -- From 0 to 1.
    score    REAL NOT NULL,
    comment  TEXT,
    rated_ms INTEGER NOT NULL
) STRICT;

-- Each tenant's rated runs by age.
CREATE INDEX ratings_tenant ON ratings (tenant, run_id);

-- A tenant's keys, as their SHA-256: a key itself is shown once and never kept.
CREATE TABLE keys (
    id         TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    hash       BLOB   NOT NULL,
    created_ms INTEGER NOT NULL,
    revoked_ms INTEGER
) STRICT;

CREATE UNIQUE INDEX keys_hash ON keys (hash);
CREATE INDEX keys_tenant ON keys (tenant, created_ms);

-- How much a tenant or a key may spend in each period.
CREATE TABLE budgets (
    -- `tenant:NAME` or `key:ID`.
    payer        TEXT NOT NULL PRIMARY KEY,
    -- The payer, or whose key it is.
    tenant       TEXT NOT NULL,
    period       TEXT NOT NULL,
    -- None: it is only counted.
    cap_nano_usd INTEGER
) STRICT;

CREATE INDEX budgets_tenant ON budgets (tenant, payer);

-- What the runs weigh that were accepted in a period, written by the statements that change it. It outlives the runs, and the
-- budget itself. Runs without a budget have no row here.
CREATE TABLE budget_sums (
    payer             TEXT    NOT NULL,
    -- The beginning of the period.
    from_ms           INTEGER NOT NULL,
    spent_nano_usd    INTEGER NOT NULL,
    reserved_nano_usd INTEGER NOT NULL,
    PRIMARY KEY (payer, from_ms)
) STRICT, WITHOUT ROWID;
