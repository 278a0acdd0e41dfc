-- For tests and benchmarks that need a database full of runs: `copy_run(template, first, last, from_ms, every_ms)` copies a run
-- that is there, with all that belongs to it. Copy number n was accepted at `from_ms + n * every_ms`.
CREATE FUNCTION copied_id(accepted_ms bigint, number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(accepted_ms), 12, '0') || '70008000' || lpad(to_hex(number), 12, '0'))::uuid
$$;

CREATE FUNCTION copy_run(template uuid, first bigint, last bigint, from_ms bigint, every_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    source record;
    columns text;
    sources text;
BEGIN
    FOR source IN
        SELECT * FROM (VALUES ('runs', 'id'), ('run_states', 'run_id'), ('run_events', 'run_id'), ('tasks', 'run_id'))
            AS source (name, key)
    LOOP
        SELECT string_agg(quote_ident(attname), ', '),
            string_agg(CASE attname
                WHEN source.key THEN 'copied_id(accepted.at_ms, n)'
                WHEN 'request_id' THEN 'old.request_id || n'
                WHEN 'accepted_ms' THEN 'accepted.at_ms'
                WHEN 'deadline_ms' THEN 'accepted.at_ms + 600000'
                WHEN 'ended_ms' THEN 'CASE WHEN old.ended_ms IS NOT NULL THEN accepted.at_ms + 5000 END'
                ELSE 'old.' || quote_ident(attname)
            END, ', ')
        INTO columns, sources
        FROM pg_attribute
        WHERE attrelid = source.name::regclass AND attnum > 0 AND NOT attisdropped;
        EXECUTE format(
            'INSERT INTO %I (%s) SELECT %s FROM generate_series($2, $3) AS n
             CROSS JOIN LATERAL (SELECT $4 + n * $5 AS at_ms) AS accepted
             JOIN %I AS old ON old.%I = $1', source.name, columns, sources, source.name, source.key)
        USING template, first, last, from_ms, every_ms;
    END LOOP;
END $$;
