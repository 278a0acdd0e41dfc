-- Additive: processes of the previous version keep working. They look for no suspended run, and leave those that they cannot read to
-- others.

-- Runs that wait for the results of tool calls, by the end of their wait, which `deadline_ms` has meanwhile.
CREATE INDEX run_states_suspended ON run_states (deadline_ms) WHERE state = 'suspended';
