-- ping
-- Whether the tables exist, and whether this is a standby, which takes no writes.
SELECT pg_is_in_recovery() AS "is_standby!", EXISTS (SELECT FROM runs) AS "has_runs!"
