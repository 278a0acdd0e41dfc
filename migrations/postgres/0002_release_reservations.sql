-- Additive: processes of the previous version keep working.

-- Whether an ended run still reserves money for attempts whose executor never reported. It is released some time later.
ALTER TABLE run_states ADD COLUMN unsettled boolean NOT NULL DEFAULT FALSE;
CREATE INDEX run_states_unsettled ON run_states (run_id) WHERE unsettled;

-- The sums of old periods are removed by the beginning of their period.
CREATE INDEX budget_sums_from ON budget_sums (from_ms);

-- The oldest Podium that can work with these tables: a process must know the migration with this number. A migration that older
-- processes cannot work with raises it.
CREATE TABLE schema_floor (
    -- The table has exactly one row.
    is_only boolean NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (is_only),
    version bigint  NOT NULL
);

INSERT INTO schema_floor (version) VALUES (1);

-- Rows of these tables are inserted once and deleted once. Vacuuming them after 2 % of new rows, and freezing the rows at once,
-- leaves little to do for the vacuum that Postgres forces every 200 million transactions.
ALTER TABLE run_events SET (
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_freeze_min_age = 0
);
ALTER TABLE runs SET (
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_freeze_min_age = 0
);
