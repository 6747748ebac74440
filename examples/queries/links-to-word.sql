-- Pages that link to a page on a subject: --set word=tern
-- A page is on the subject if its title or its text contains it as a whole word, in any case.
WITH matching AS (
    SELECT url
    FROM page
    WHERE status = 200
        AND regexp_matches(concat_ws(' ', title, text), '\b' || regexp_escape($word) || '\b', 'i')
)
SELECT link.from_url AS url, page.title, count(DISTINCT link.to_url) AS matching_links
FROM link
JOIN matching ON matching.url = link.to_url
JOIN page ON page.url = link.from_url
WHERE link.from_url <> link.to_url
GROUP BY ALL
ORDER BY matching_links DESC, url
