"""An archive of many pages, made from real ones: the beginning of one page and the end of another."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.crawl import DEBIAN

from sterna.archive.manifest import Snapshot
from sterna.archive.parquet import write_segment
from sterna.archive.rows import SCHEMAS
from sterna.web.document import Fetched, read_document

BATCH_PAGES = 500
SITES = 50
LINKS = 20  # a page


@dataclass(frozen=True, slots=True)
class Made:
    """A page as it lies in the archive."""

    url: str
    title: str
    text: str
    language: str


def real_pages(limit: int) -> list[Made]:
    """Pages of Debian's documentation of Boost and OpenJDK, read as a crawl reads them."""
    paths = sorted(path for folder in DEBIAN.values() for path in folder.rglob("*.html") if path.is_file())
    pages = []
    for path in paths[:: max(1, len(paths) // limit)][:limit]:
        answer = Fetched(
            url=f"http://h.test{path}", status=200, content_type="text/html", body=path.read_bytes()
        )
        document = read_document(answer)
        if document.text:
            pages.append(Made("", document.title, document.text, document.language))
    return pages


def url_of(number: int) -> str:
    """The URL of a made page."""
    return f"http://www{number % SITES}.example.org/docs/{number // SITES}/page{number}.html"


def made_pages(real: Sequence[Made], count: int, *, seed: int = 1) -> Iterator[Made]:
    """First the real ones, then mixtures of two of them by chance."""
    chance = random.Random(seed)
    for number in range(count):
        url = url_of(number)
        if number < len(real):
            page = real[number]
            yield Made(url, page.title, page.text, page.language)
            continue
        one, other = chance.choice(real), chance.choice(real)
        text = one.text[: len(one.text) // 2] + " " + other.text[len(other.text) // 2 :]
        yield Made(url, f"{one.title} {other.title[:20]} {number}", text, one.language)


def write_corpus(folder: Path, count: int, *, real: Sequence[Made]) -> None:
    """The segments of so many made pages, and of links between them."""
    folder.mkdir(parents=True)
    chance = random.Random(2)
    pages = made_pages(real, count)
    for batch in range(1, -(-count // BATCH_PAGES) + 1):
        part = list(islice(pages, BATCH_PAGES))
        _write(folder, "page", batch, [_row(page) for page in part])
        # The earlier a page, the more pages link to it.
        links = [
            {"from_url": page.url, "to_url": url_of(int(batch * BATCH_PAGES * chance.random() ** 3))}
            for page in part
            for _ in range(LINKS)
        ]
        _write(folder, "link", batch, links)


def snapshot_of(folder: Path) -> Snapshot:
    """All segments of a corpus."""
    tables = {table: tuple(sorted(folder.glob(f"*.{table}.parquet"))) for table in ("page", "link")}
    return Snapshot(tables=tables, batch=len(tables["page"]))


def text_bytes_of(path: Path) -> int:
    """How many bytes the texts of a segment have."""
    texts = pq.read_table(path, columns=["text"])["text"]
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def _row(page: Made) -> dict[str, object]:
    return {
        "url": page.url,
        "site": page.url[: page.url.index("/", 8)],
        "status": 200,
        "title": page.title or None,
        "text": page.text,
        "language": page.language or None,
        "digest": blake2b(f"{page.url} {page.text}".encode(), digest_size=16).hexdigest(),
        "again": False,
    }


def _write(folder: Path, table: str, batch: int, rows: Sequence[dict[str, object]]) -> None:
    fields = SCHEMAS[table]
    came = {"fetched": 1_700_000_000_000_000 + batch, "batch": batch}
    columns = [pa.array([{**came, **row}.get(field.name) for row in rows], field.type) for field in fields]
    name = f"{batch:08d}.{table}.parquet"
    write_segment(folder, name, rows=[pa.table(columns, schema=fields)], schema=fields)
