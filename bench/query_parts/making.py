"""A million pages of facts made from real pages of this machine, as intake and compaction leave them.

Real pages are read once, as a crawl reads them; then they are stored again and again, each time as another
site. Of each page its first links are kept: all of them would be ninety million.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from bench.pages import DOCS

from sterna.archive.manifest import Batch, Segment
from sterna.archive.parquet import gathered, write_segment
from sterna.archive.rows import link_table, page_table
from sterna.archive.segments import SegmentStore
from sterna.model import Links, Page
from sterna.web.document import Fetched, read_document
from sterna.web.urls import fingerprint

HOST = "site-00000.example"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BATCH_PAGES = 500
LINKS_A_PAGE = 20
SITES_A_FILE = 10
AGAIN_EVERY = 10  # a tenth of the pages has a second version

Tables = dict[str, list[Path]]


class Maker:
    """Writes the tables of so many sites with so many pages each."""

    def __init__(self, folder: Path, *, pages: int, sites: int) -> None:
        self._folder = folder
        self._sites = sites
        self._base = base_tables(pages)
        self.pages = self._base["page"].num_rows * sites
        self.links = self._base["link"].num_rows * sites
        self.urls: list[str] = self._base["page"]["url"].to_pylist()

    def first_versions(self) -> Tables:
        """Every page once, in large segments."""
        made: Tables = {"page": [], "link": []}
        for begin in range(0, self._sites, SITES_A_FILE):
            numbers = range(begin, min(begin + SITES_A_FILE, self._sites))
            for table, files in made.items():
                groups = gathered(self._site(table, number) for number in numbers)
                files.append(self._write(f"first-{begin:05}.{table}.parquet", groups))
        return made

    def second_versions(self) -> Tables:
        """A tenth of the pages once more, with their links."""
        made: Tables = {"page": [], "link": []}
        for table, files in made.items():
            groups = gathered(self._again(table, number) for number in range(self._sites))
            files.append(self._write(f"second.{table}.parquet", groups))
        return made

    def small(self, sites: int) -> tuple[Tables, Tables]:
        """Some of the sites in segments of a batch each, and the same after compaction."""
        many: Tables = {"page": [], "link": []}
        merged: Tables = {"page": [], "link": []}
        store = SegmentStore(self._folder)
        for table, files in many.items():
            segments = []
            for number in range(sites):
                for count, part in enumerate(batches_of(self._site(table, number))):
                    name = f"small-{number:05}-{count:03}.{table}.parquet"
                    files.append(self._write(name, iter([part])))
                    segments.append(Segment(name, table, part.num_rows, files[-1].stat().st_size))
            merged[table].append(store.path(store.merge(segments).name))
        return many, merged

    def _site(self, table: str, number: int) -> pa.Table:
        """The rows of one site: those of the first with another name, in batches of their own."""
        rows = self._base[table]
        for column in ("url", "site", "referrer", "from_url", "to_url"):
            if column in rows.column_names:
                named = pc.replace_substring(rows[column], HOST, host_of(number), max_replacements=1)
                rows = replaced(rows, column, named)
        first = number * (self._base["page"].num_rows // BATCH_PAGES + 1)
        return replaced(rows, "batch", pc.add(rows["batch"], first))

    def _again(self, table: str, number: int) -> pa.Table:
        rows = self._site(table, number)
        numbers = self._base[f"{table} number"]
        rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, AGAIN_EVERY), AGAIN_EVERY))
        rows = rows.filter(pc.equal(rest, 0))
        later = pc.add(rows["fetched"], pa.scalar(timedelta(days=30), pa.duration("us")))
        rows = replaced(rows, "fetched", later)
        last = self._sites * (self._base["page"].num_rows // BATCH_PAGES + 1)
        rows = replaced(rows, "batch", pc.add(rows["batch"], last))
        if table == "page":
            rows = replaced(rows, "again", pa.repeat(pa.scalar(True), rows.num_rows))
            rows = replaced(rows, "digest", pc.utf8_reverse(rows["digest"]))
        return rows

    def _write(self, name: str, groups: Iterator[pa.Table]) -> Path:
        first = next(groups)
        rows = (group for part in ([first], groups) for group in part)
        write_segment(self._folder, name, rows=rows, schema=first.schema)
        return self._folder / name


def base_tables(count: int) -> dict[str, pa.Table]:
    """Pages and links of the first site, and of each row the number of its page."""
    pages = list(read_pages(count))
    made: dict[str, list[pa.Table]] = {"page": [], "link": []}
    for number, begin in enumerate(range(0, len(pages), BATCH_PAGES), start=1):
        part = [(f"https://{HOST}", page) for page in pages[begin : begin + BATCH_PAGES]]
        size = len(part)
        batch = Batch(number=number, crawler="bench", visits=("v1",) * size, again=(False,) * size)
        made["page"].append(page_table(part, batch))
        made["link"].append(link_table(part, batch))
    tables = {name: pa.concat_tables(parts).combine_chunks() for name, parts in made.items()}
    empty = [name for name in tables["page"].column_names if tables["page"][name].null_count == len(pages)]
    tables["page"] = tables["page"].drop_columns(empty)
    places = pa.array([page.url for page in pages])
    return {
        **tables,
        "page number": pc.index_in(tables["page"]["url"], places),
        "link number": pc.index_in(tables["link"]["from_url"], places),
    }


def read_pages(count: int) -> Iterator[Page]:
    """Real pages, chosen by chance, read as a crawl reads them; some links lead to pages that are gone."""
    paths = sorted(path for path in DOCS.rglob("*.html") if path.is_file())
    chosen = random.Random(1).sample(paths, min(count, len(paths)))
    for number, path in enumerate(chosen):
        url = f"https://{HOST}/{path.relative_to(DOCS)}"
        answer = Fetched(url=url, status=200, content_type="text/html", body=path.read_bytes())
        document = read_document(answer)
        links = Links("\n".join(document.links.urls.split("\n")[:LINKS_A_PAGE]))
        yield Page(
            url=url,
            fingerprint=fingerprint(url),
            depth=number % 7,
            fetched=(BEGAN + timedelta(seconds=number)).timestamp(),
            status=404 if number % 50 == 0 else 200,
            content_type=document.content_type,
            title=document.title,
            text=document.text,
            language=document.language,
            digest=document.digest,
            size=document.size,
            referrer=f"https://{HOST}/",
            links=links,
        )


def batches_of(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of each batch; they lie one after the other."""
    numbers = rows["batch"].to_pylist()
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[begin]:
            yield rows.slice(begin, place - begin)
            begin = place


def host_of(number: int) -> str:
    return f"site-{number:05}.example"


def replaced(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(column), column, values)
