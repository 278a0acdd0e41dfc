-- Additive: processes of the previous version keep working. They neither read nor write these tables.

-- Objects of clients besides runs: conversations, and marks of deleted responses. The store does not interpret them.
CREATE TABLE objects (
    tenant     text   NOT NULL,
    id         text   NOT NULL,
    -- Counts its changes. A writer names the version that it replaces; otherwise it is refused.
    version    bigint NOT NULL,
    -- JSON. Not `jsonb`, which would order its members anew.
    body       text   NOT NULL,
    changed_ms bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- From the one that was unchanged for longest, to remove old ones.
CREATE INDEX objects_changed ON objects (changed_ms);

-- One row: the secret of the deployment. Gateways derive keys from it, with which they seal data that clients keep.
CREATE TABLE deployment_secret (
    id     smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    secret bytea    NOT NULL CHECK (length(secret) = 32)
);

-- Each UUID has 122 random bits from the server's strong random numbers.
INSERT INTO deployment_secret (id, secret)
VALUES (1, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
