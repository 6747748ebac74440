-- Pages to which no page links: start pages, and pages found only through a sitemap or an old link.
SELECT url, title, depth
FROM page
ANTI JOIN (SELECT to_url FROM link WHERE from_url <> to_url) AS link ON link.to_url = page.url
WHERE status = 200
ORDER BY url
