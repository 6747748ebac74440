-- The biggest pages, with the length of their text: --set count=20
SELECT url, content_type, size, length(text) AS letters, title
FROM page
WHERE status = 200
ORDER BY size DESC, url
LIMIT $count::INTEGER
