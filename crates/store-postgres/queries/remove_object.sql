-- remove_object
DELETE FROM objects
WHERE tenant = $1 AND id = $2
