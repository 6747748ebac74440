"""Exports made of tables: rows as JSON lines, CSV or Parquet, and sitemaps; streamed, so of any size."""

import io
from pathlib import Path
from typing import BinaryIO

from sterna.errors import UsageError
from sterna.export.progress import Form
from sterna.export.selection import Selection
from sterna.query.output import write, write_parquet
from sterna.web.sitemap_file import Listed, write_sitemap

_BATCH_ROWS = 1_024  # of Parquet, held in memory with all their texts
_FOUND = "status = 200"
# A page with several versions changed before the last one was fetched; of any other it is unknown.
_LASTMOD = """
    epoch(coalesce(modified, CASE WHEN url IN (
        SELECT url FROM page_history WHERE status = 200 GROUP BY url HAVING count(*) > 1
    ) THEN fetched END))
"""


def write_rows(source: Selection, out: BinaryIO, *, table: str, form: Form, safe_cells: bool = False) -> int:
    """Writes the rows, and returns their number."""
    source.progress.begin(f"rows of {table}", total=source.check(table), unit="rows")
    sql, progress = source.select("*", table=table), source.progress
    if form == "parquet":
        found = source.engine.run_arrow(sql, batch_rows=_BATCH_ROWS)
        batches = progress.of(found.batches, lambda batch: int(batch.num_rows))
        write_parquet(found._replace(batches=batches), out)
        return progress.done
    result = source.engine.run(sql)
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    try:
        write(result._replace(rows=progress.of(result.rows)), format=form, out=text, safe_cells=safe_cells)
    finally:
        text.detach()  # the stream is not ours to close
    return progress.done


def make_sitemap(source: Selection, path: Path, *, base: str) -> tuple[list[Path], int]:
    """Writes the sitemap and its parts beside it; returns the files, index first, and the number of pages."""
    source.check()
    source.progress.begin("pages", total=source.count(_FOUND), unit="pages")
    base = base or _only_site(source)
    pages = (Listed(*row) for row in source.rows(f"url, {_LASTMOD}", and_where=_FOUND))
    return write_sitemap(source.progress.of(pages), path, base=base), source.progress.done


def _only_site(source: Selection) -> str:
    sites = [site for (site,) in source.rows("DISTINCT site", and_where=_FOUND)]
    if len(sites) > 1:
        raise UsageError(
            f"the pages are of {len(sites):,} sites, and a sitemap is of one: choose it by --where"
            f" \"site = '{sites[0]}'\", or say by --base URL where the sitemap will be served"
        )
    return sites[0] if sites else ""
