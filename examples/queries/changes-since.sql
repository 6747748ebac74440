-- Changes since a time: --set since=2026-01-31
-- Each page once, with its last event.
SELECT url, arg_max(kind, fetched) AS kind, max(fetched) AS fetched, count(*) AS events
FROM event
WHERE fetched >= $since::TIMESTAMPTZ
GROUP BY url
ORDER BY fetched, url
