-- read_clock
SELECT floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint AS "now_us!"
