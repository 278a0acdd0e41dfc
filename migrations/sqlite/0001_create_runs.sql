-- Runs, what happened to them, and what needs doing. The events are the truth; the other columns are what is searched by,
-- and follow from them. Times are milliseconds since the Unix epoch, ids are UUIDs as 16 bytes.

CREATE TABLE runs (
    -- Version 7: sorts by the time of acceptance.
    id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant        TEXT    NOT NULL,
    -- The client's own name for the request. Any number of runs have none.
    request_id    TEXT,
    model         TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    -- Its beginning, for lists.
    question      TEXT    NOT NULL,
    -- The sequence number of the last event. Every writer says which one it follows; who comes late is refused.
    version       INTEGER NOT NULL,
    steps         INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    accepted_ms   INTEGER NOT NULL,
    deadline_ms   INTEGER NOT NULL,
    ended_ms      INTEGER,
    UNIQUE (tenant, request_id)
) STRICT;

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

-- A row for each task of each run. A ready one is its own message-to-be: whoever finds it past `dispatch_after_ms`
-- publishes it again.
CREATE TABLE tasks (
    run_id            BLOB    NOT NULL REFERENCES runs (id),
    task              TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    -- Of a ready task.
    dispatch_after_ms INTEGER,
    -- Of a running task.
    claim             BLOB,
    lease_until_ms    INTEGER,
    PRIMARY KEY (run_id, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_ready ON tasks (dispatch_after_ms) WHERE state = 'ready';
CREATE INDEX tasks_running ON tasks (lease_until_ms) WHERE state = 'running';
