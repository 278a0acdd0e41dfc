-- Additive: the previous version keeps working.

-- Whether an ended run still reserves money for attempts whose executor never reported. It is released some time later.
ALTER TABLE runs ADD COLUMN unsettled INTEGER NOT NULL DEFAULT FALSE;
CREATE INDEX runs_unsettled ON runs (id) WHERE unsettled;

-- The sums of old periods are removed by the beginning of their period.
CREATE INDEX budget_sums_from ON budget_sums (from_ms);

-- The oldest Podium that can work with these tables: a process must know the migration with this number. A migration that older
-- processes cannot work with raises it.
CREATE TABLE schema_floor (
    -- The table has exactly one row.
    is_only INTEGER NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (is_only),
    version INTEGER NOT NULL
) STRICT;

INSERT INTO schema_floor (version) VALUES (1);
