-- Additive: the previous version keeps working. It neither reads nor writes these tables.

-- Objects of clients besides runs: conversations, and marks of deleted responses. The store does not interpret them.
CREATE TABLE objects (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    -- Counts its changes. A writer names the version that it replaces; otherwise it is refused.
    version    INTEGER NOT NULL,
    -- JSON.
    body       TEXT    NOT NULL,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

-- From the one that was unchanged for longest, to remove old ones.
CREATE INDEX objects_changed ON objects (changed_ms);

-- One row: the secret of the deployment. The server derives keys from it, with which it seals data that clients keep.
CREATE TABLE deployment_secret (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    secret BLOB    NOT NULL CHECK (length(secret) = 32)
) STRICT;

INSERT INTO deployment_secret (id, secret) VALUES (1, randomblob(32));
