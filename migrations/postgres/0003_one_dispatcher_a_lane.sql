-- Additive: processes of the previous version keep working. They dispatch every lane next to the one process that has its lease,
-- as they did before.

-- The process that publishes a lane's backlog, until when. Not logged: after a crash of the server, or on a standby that takes over,
-- nobody has a lane until somebody takes it.
CREATE UNLOGGED TABLE lane_dispatchers (
    lane     text   NOT NULL PRIMARY KEY,
    -- Random, new with each start of a process.
    holder   uuid   NOT NULL,
    until_ms bigint NOT NULL
) WITH (fillfactor = 50);
