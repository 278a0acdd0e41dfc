-- find_held
SELECT tasks.run_id AS "run_id!", tasks.task AS "task!", tasks.claim AS "claim!"
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS hold (run_id, task, claim)
JOIN tasks ON tasks.run_id = hold.run_id AND tasks.task = hold.task AND tasks.claim = hold.claim
WHERE tasks.state = 'running'
