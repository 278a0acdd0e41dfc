-- Additive: processes of the previous version keep working. They neither read nor write this table.

-- What operators did with `podium admin` and `podium budget correct`. Insert only.
CREATE TABLE operator_actions (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms    bigint NOT NULL,
    operator text   NOT NULL,
    action   text   NOT NULL,
    subject  text   NOT NULL,
    details  text   NOT NULL
);
