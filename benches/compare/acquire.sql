WITH lease AS (
    INSERT INTO key_value AS held (key, value, expire_at)
    SELECT $3, $1, NOW() + $4 * INTERVAL '1 second'
    WHERE set_config('lock_timeout', COALESCE($2, current_setting('lock_timeout')), true) IS NOT NULL
    AND set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, true) IS NOT NULL
    ON CONFLICT (key) DO UPDATE
    SET value = EXCLUDED.value, expire_at = GREATEST(held.expire_at, EXCLUDED.expire_at)
    WHERE held.expire_at <= NOW() OR held.value = EXCLUDED.value
    RETURNING expire_at
), fence AS (
    INSERT INTO key_value AS held (key, value, expire_at)
    SELECT $5, '1', 'infinity' FROM lease
    ON CONFLICT (key) DO UPDATE
    SET value = (held.value::bigint + 1)::text, expire_at = 'infinity'
    RETURNING value::bigint AS token
)
SELECT NOW(), (SELECT token FROM fence), (SELECT expire_at FROM lease), seen.value, seen.expire_at
FROM (SELECT 1) AS one LEFT JOIN key_value AS seen ON seen.key = $3
