-- Fiedler-Hammer, table 3: find dead links in order to delete them from the index. (There the status is 401; a
-- page that is gone answers with 404 or 410.)
SELECT url FROM Page p WHERE p.status IN (401, 404, 410)
