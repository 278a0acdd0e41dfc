-- remove_old_objects
-- A caller whose clock is ahead removes nothing early: its time counts only up to this server's time.
DELETE FROM objects
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM objects AS old
    WHERE old.changed_ms
        <= (SELECT least($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint) - $2)
    ORDER BY old.changed_ms
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))
