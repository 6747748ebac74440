-- Clusters of pages on a subject: --set word=tern --set least=3
--
-- The root page of each tree in which at least `least` pages have the word (Fiedler-Hammer 1.3.3). The tree is that of
-- the crawl: `referrer` is the page through which a page was first found. A crawl is breadth-first, so this is a
-- shortest path from a start page, and every page has one place in the tree. Later visits may introduce cycles, which
-- UNION ends. By links alone, every page of most sites would be the root of nearly all others; by the folders of the
-- URLs, a flat site would have one tree.
--
-- The start page is the root of everything. So only the deepest roots are listed: those that have enough pages below
-- them, but none of whose children has enough by itself.
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
