-- Fiedler-Hammer, table 3: find successfully loaded pages in order to add them to the index.
SELECT url, text AS content FROM Page p WHERE p.status = 200
