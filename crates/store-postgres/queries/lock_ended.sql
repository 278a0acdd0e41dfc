-- lock_ended
-- Ids sort by the time of acceptance, and no run ends before it is accepted: so the walk by id stops where nothing can have ended in
-- time, and ended runs need no index, which every run would have to write. The walk begins after the runs that were removed last:
-- their index entries stay until a vacuum may remove them, which a long transaction anywhere prevents. Nothing waits for the disk:
-- what a crash brings back is removed again. The setting holds for this transaction.
SELECT run_id AS "run_id!"
FROM run_states
WHERE run_id > $4
    AND run_id < $1
    AND state <> 'active'
    AND ended_ms <= $2
    AND (SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'
ORDER BY run_id
LIMIT $3
FOR UPDATE SKIP LOCKED
