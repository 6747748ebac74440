-- Dead links with the pages that contain them. URLs that robots.txt forbids are not dead.
SELECT link.to_url AS dead, coalesce(target.status::VARCHAR, target.error) AS why,
    link.from_url AS found_on, link.text
FROM link
JOIN page AS target ON target.url = link.to_url
WHERE target.status >= 400 OR (target.status IS NULL AND target.error <> 'robots')
ORDER BY dead, found_on, link.text
