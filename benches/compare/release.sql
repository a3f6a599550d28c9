WITH due AS (
    SELECT * FROM unnest($1, $2, $3) WITH ORDINALITY AS due(key, value, channel, n)
), free AS (
    SELECT held.key, held.value, due.channel FROM key_value AS held
    JOIN due ON held.key = due.key AND held.value = due.value
    FOR NO KEY UPDATE OF held SKIP LOCKED
), touched AS (
    UPDATE key_value AS held SET expire_at = NOW() FROM free AS row
    WHERE held.key = row.key AND held.value = row.value
    RETURNING held.key, held.value, held.expire_at
)
SELECT touched.expire_at, seen.key IS NOT NULL,
    CASE WHEN touched.key IS NOT NULL THEN pg_notify(due.channel, '')::text END
FROM due LEFT JOIN touched ON touched.key = due.key AND touched.value = due.value
LEFT JOIN key_value AS seen ON seen.key = due.key AND seen.value = due.value
ORDER BY due.n
