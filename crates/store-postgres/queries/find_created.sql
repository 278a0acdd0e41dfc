-- find_created
-- The existing run: the same one, if the caller repeats the request, or the one with the request id.
SELECT given.id AS "given!", coalesce(own.id, other.id) AS "found?"
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS given (id, tenant, request_id)
LEFT JOIN runs AS own ON own.id = given.id
LEFT JOIN runs AS other ON other.tenant = given.tenant AND other.request_id = given.request_id
