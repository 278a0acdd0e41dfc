-- Additive: the previous version keeps working. It leaves these columns as they are: absent in the rows of runs that it ends.

-- What the answer of an ended run lacks, for lists. Absent while the run is active.
-- Steps that gave no output.
ALTER TABLE runs ADD COLUMN failed_steps INTEGER;
-- Whether the answer was built without the output of a step that it needs.
ALTER TABLE runs ADD COLUMN degraded INTEGER;
-- Whether the worker of the final step declined to answer.
ALTER TABLE runs ADD COLUMN refused INTEGER;
