-- Additive: the previous version keeps working.

-- Runs that wait for the results of tool calls, by the end of their wait, which `deadline_ms` has meanwhile.
CREATE INDEX runs_suspended ON runs (deadline_ms) WHERE state = 'suspended';
