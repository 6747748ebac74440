-- The pages to which most other pages link: --set count=20
SELECT page.url, page.title, count(DISTINCT link.from_url) AS linking_pages
FROM page
JOIN link ON link.to_url = page.url AND link.from_url <> page.url
WHERE page.status = 200
GROUP BY page.url, page.title
ORDER BY linking_pages DESC, page.url
LIMIT $count::INTEGER
