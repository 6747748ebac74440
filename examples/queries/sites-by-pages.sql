-- Sites by number of pages, with their share of dead URLs and the time of the last fetch.
SELECT page.site, count(*) FILTER (status = 200) AS pages,
    round(100.0 * count(*) FILTER (status IN (404, 410)) / count(*), 1) AS dead_percent,
    sum(size) FILTER (status = 200)::BIGINT AS bytes, max(fetched) AS last_read
FROM page
GROUP BY page.site
ORDER BY pages DESC, page.site
