-- All that dislock needs. Any table of this shape will do: name it with LOCK_TABLE.
CREATE TABLE IF NOT EXISTS key_value (
    key text PRIMARY KEY,
    value text NOT NULL,
    expire_at timestamptz NOT NULL
) WITH (fillfactor = 50);
-- A renewal changes no indexed column. Where its page has room, it touches no index either (HOT); with
-- half of every page free that holds even when all leases of a large service are renewed at once.
