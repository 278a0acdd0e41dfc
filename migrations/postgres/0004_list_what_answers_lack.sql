-- Additive: processes of the previous version keep working. They leave these columns as they are: absent in the rows of runs that
-- they end.

-- What the answer of an ended run lacks, for lists. Absent while the run is active.
ALTER TABLE run_states
    -- Steps that gave no output.
    ADD COLUMN failed_steps bigint,
    -- Whether the answer was built without the output of a step that it needs.
    ADD COLUMN degraded     boolean,
    -- Whether the worker of the final step declined to answer.
    ADD COLUMN refused      boolean;
