-- Clusters of pages on a subject: --set word=tern --set least=3
--
-- The root page of each tree in which at least this many pages contain the word (Fiedler-Hammer 1.3.3). The tree
-- is that of the crawl: `referrer` is the page on which a page was first found. A crawl is breadth first, so the
-- path to a page is one of the shortest, and each page is in the tree once. Later visits may add cycles, which
-- UNION ends. By links alone nearly every page of a site would be the root of all others; by the folders of
-- the URLs a flat site would have one tree.
--
-- The start page is the root of everything. So only the deepest roots are returned: those with enough pages
-- below them of which no child has enough by itself.
WITH RECURSIVE
    good AS (
        SELECT url, title, referrer,
            regexp_matches(concat_ws(' ', title, text), '\b' || regexp_escape($word) || '\b', 'i') AS matches
        FROM page
        WHERE status = 200
    ),
    lineage(url, root) AS (
        SELECT url, url FROM good
        UNION
        SELECT lineage.url, good.referrer
        FROM lineage JOIN good ON good.url = lineage.root
        WHERE good.referrer IS NOT NULL
    ),
    tree AS (
        SELECT root, count(*) AS pages, count(*) FILTER (good.matches) AS matching_pages
        FROM lineage JOIN good USING (url)
        GROUP BY root
        HAVING matching_pages >= $least::INTEGER
    )
SELECT root.url AS root, root.title, tree.matching_pages, tree.pages
FROM tree
JOIN good AS root ON root.url = tree.root
WHERE NOT EXISTS (
    SELECT 1 FROM good AS child JOIN tree AS below ON below.root = child.url
    WHERE child.referrer = root.url AND child.url <> root.url
)
ORDER BY matching_pages DESC, root
