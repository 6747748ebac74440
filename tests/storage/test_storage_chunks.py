"""Which queries can be asked over many batches at once."""

import pytest

from sterna.storage.chunks import is_by_row


@pytest.mark.parametrize(
    "query",
    [
        "SELECT url, title FROM page",
        "SELECT url, upper(title), size / 2, CASE WHEN depth = 0 THEN 1 END FROM page WHERE status = 200",
        "SELECT p.url FROM page_history AS p WHERE p.title ILIKE '%a%'",
        "SELECT * FROM link",
        'SELECT "name" FROM clinic',
        "SELECT url, unnest(keywords) AS word FROM page",
    ],
)
def test_row_after_row(query: str) -> None:
    assert is_by_row(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM page",
        "SELECT status, count(*) FROM page GROUP BY status",
        "SELECT DISTINCT site FROM page",
        "SELECT url FROM page ORDER BY url",
        "SELECT url FROM page LIMIT 5",
        "SELECT url FROM page QUALIFY row_number() OVER () = 1",
        "SELECT url, row_number() OVER (ORDER BY url) FROM page",
        "SELECT url FROM page JOIN link ON url = from_url",
        "SELECT url FROM page, link",
        "SELECT url FROM page WHERE url IN (SELECT to_url FROM link)",
        "SELECT url FROM page UNION ALL SELECT to_url FROM link",
        "WITH p AS (SELECT url FROM page) SELECT url FROM p",
        "SELECT any_value(url) FROM page",
        "SELECT list(url) FROM page",
        "SELECT string_agg(url, ',') FROM page",
        "SELECT mode(status) FROM page",
        "SELECT some_new_aggregate(status) FROM page",
        "SELECT site FROM site",
        "SELECT random() AS r FROM page",
        "FROM page SELECT max(url)",
        "not sql at all",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_over_rows(query: str) -> None:
    assert not is_by_row(query)
