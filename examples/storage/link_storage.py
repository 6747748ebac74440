"""Stores links as counts between the first parts of paths: /species/tern.html -> /species."""

from collections import Counter
from urllib.parse import urlsplit

from sqlalchemy import text

MAKE = text(
    "CREATE TABLE IF NOT EXISTS traffic (source text, target text, links int, PRIMARY KEY (source, target))"
)
ADD = text(
    "INSERT INTO traffic VALUES (:source, :target, :links)"
    " ON CONFLICT (source, target) DO UPDATE SET links = traffic.links + excluded.links"
)


def add_links(connection, rows):
    """Called with the rows of the query, within the transaction that also notes that they are stored."""
    counts = Counter((part(row["from_url"]), part(row["to_url"])) for row in rows)
    connection.execute(MAKE)
    connection.execute(
        ADD,
        [{"source": source, "target": target, "links": n} for (source, target), n in sorted(counts.items())],
    )


def part(url):
    return "/" + urlsplit(url).path.split("/")[1].partition(".")[0]
