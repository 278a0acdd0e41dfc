-- Additive: processes of the previous version keep working. They extend the lease of each of their claims, as before, and leave
-- the new column absent.

-- Until when each process counts as alive. Logged, unlike `lane_dispatchers`: Postgres empties unlogged tables when it restarts
-- after a crash of one of its own processes, and all claims would be released although their holders live.
CREATE TABLE process_leases (
    -- Random, new with each start of a process.
    process  uuid   NOT NULL PRIMARY KEY,
    until_ms bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Of a running task: the process whose lease the claim depends on. Absent if a process of an earlier version made the claim: then
-- `lease_until_ms` counts.
ALTER TABLE tasks ADD COLUMN process uuid;
-- From process to process, to find the dead ones; then their tasks. At the end of the index are the claims without a process.
CREATE INDEX tasks_process ON tasks (process) WHERE state = 'running';
