-- read_secret
SELECT secret AS "secret!"
FROM deployment_secret
