-- lock_ended
-- Ids sort by the time of acceptance, and no run ends before it is accepted. So the walk by id stops where no run can have ended
-- early enough, and ended runs need no index, which every run would have to write. The walk begins after the runs that were
-- removed last: their index entries stay until a vacuum may remove them, which a long transaction anywhere prevents. Nothing
-- waits for the disk: what a crash restores is removed again. The setting applies to this transaction.
-- A caller whose clock is ahead removes nothing early: its time counts only up to this server's time.
SELECT run_id AS "run_id!"
FROM run_states
WHERE run_id > $5
    AND run_id < $1
    AND state <> 'active'
    AND ended_ms <= (SELECT least($2, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::bigint) - $3)
    AND (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
ORDER BY run_id
LIMIT $4
FOR UPDATE SKIP LOCKED
