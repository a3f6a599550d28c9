-- All that dislock needs. Any table of this shape will do: name it with LOCK_TABLE.
CREATE TABLE IF NOT EXISTS key_value (
    key text PRIMARY KEY,
    value text NOT NULL,
    expire_at timestamptz NOT NULL
);
