-- find_object
SELECT version AS "version!", body AS "body!"
FROM objects
WHERE tenant = $1 AND id = $2
