-- Additive: the previous version keeps working. It neither reads nor writes this table.

-- What operators did with `podium admin` and `podium budget correct`. Insert only.
CREATE TABLE operator_actions (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms    INTEGER NOT NULL,
    operator TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    details  TEXT    NOT NULL
) STRICT;
