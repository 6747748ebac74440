"""The pages of a collection as a sitemap, in as many files as it takes."""

from collections.abc import Iterator
from pathlib import Path

from sterna.errors import UsageError
from sterna.export.progress import Progress, Tally
from sterna.export.selection import Source
from sterna.web.sitemap_file import Listed, write_sitemap

_FOUND = "status = 200"
# A page that came in several versions was changed before the last one was fetched; of any other nobody knows.
_LASTMOD = """
    epoch(coalesce(modified, CASE WHEN url IN (
        SELECT url FROM page_history WHERE status = 200 GROUP BY url HAVING count(*) > 1
    ) THEN fetched END))
"""


def make_sitemap(source: Source, path: Path, *, base: str, progress: Progress) -> tuple[list[Path], int]:
    """Writes the sitemap there and its parts beside it; gives them, the one that names the others first."""
    source.check()
    progress.begin("pages", total=source.count(_FOUND), unit="pages")
    tally = Tally(progress)
    base = base or _only_site(source)
    return write_sitemap(tally.of(_pages(source)), path, base=base), tally.count


def _pages(source: Source) -> Iterator[Listed]:
    for url, lastmod in source.rows(f"url, {_LASTMOD}", and_where=_FOUND):
        yield Listed(url, lastmod)


def _only_site(source: Source) -> str:
    sites = [site for (site,) in source.rows("DISTINCT site", and_where=_FOUND)]
    if len(sites) > 1:
        raise UsageError(
            f"the pages are of {len(sites):,} sites, and a sitemap is of one: choose it by --where"
            f" \"site = '{sites[0]}'\", or say by --base URL where the sitemap will be served"
        )
    return sites[0] if sites else ""
