-- Additive: the previous version keeps working. It extends the lease of each claim, as before, and leaves the new column absent.

-- Until when each process counts as alive.
CREATE TABLE process_leases (
    -- Random, new with each start of a process.
    process  BLOB    NOT NULL PRIMARY KEY CHECK (length(process) = 16),
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Of a running task: the process whose lease the claim depends on. Absent if a process of an earlier version made the claim: then
-- `lease_until_ms` counts.
ALTER TABLE tasks ADD COLUMN process BLOB;
CREATE INDEX tasks_process ON tasks (process) WHERE state = 'running';
