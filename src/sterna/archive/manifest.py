"""Records of the archive: its files as the manifest in the ledger lists them, and what is written to them."""

from pathlib import Path
from typing import Annotated

from sterna.model import Record, Stored

TABLES = ("page", "link", "fact")
UNWANTED = "unwanted"  # the `error` of a tombstone: the page was kept, and is gone or no longer wanted

Contents = tuple[tuple[int, tuple[int, ...]], ...]  # batches, each with its rows in every one of TABLES


class Segment(Record, frozen=True):
    """A Parquet file as the manifest knows it."""

    name: str
    table: str
    rows: int
    size_bytes: int
    tier: int = 0


class Origin(Record, frozen=True):
    """Whose files these are: the id of a collection, and the settings of its crawl as JSON."""

    collection: str = ""
    options: str = ""


class Label(Record, frozen=True, array_like=False, kw_only=True, omit_defaults=True):
    """What a segment says of itself, as JSON in its footer, so that a lost ledger can be made anew."""

    collection: str = ""
    options: str = ""
    table: str = ""
    tier: int = 0
    contents: Contents = ()


NO_ORIGIN, NO_LABEL = Origin(), Label()


class WarcPosition(Record, frozen=True):
    """A WARC file as the manifest knows it."""

    name: str
    committed_bytes: int
    is_open: bool


class FactRow(Record, frozen=True, kw_only=True):
    """A fact as the archive stores it: where it came from, and its slots as JSON."""

    crawler: Annotated[str, Stored("text")]
    site: Annotated[str, Stored("text")]
    visit: Annotated[str, Stored("text")]
    template: Annotated[str, Stored("text")]
    data: Annotated[str, Stored("text")]
    received: Annotated[float | None, Stored("time")]  # None: unknown


class Batch(Record, frozen=True, kw_only=True):
    """What one commit stores: its number, its crawler, and the visit of each page."""

    number: int
    crawler: str
    visits: tuple[str, ...]  # of the pages, in their order
    again: tuple[bool, ...]  # of the pages; False: no earlier version of the URL is stored


class Snapshot(Record, frozen=True, kw_only=True):
    """What is committed at one moment.

    Files are removed two minutes after they were merged into others: take a new snapshot for longer work.
    """

    tables: dict[str, tuple[Path, ...]]  # page, link, fact: the files, in the order of their names
    batch: int  # the last one, 0 if there is none; later rows in the files are not part of the snapshot


class Original(Record, frozen=True):
    """The response in a WARC file to which later revisits of its URL refer."""

    fetched: float
    payload: bytes  # SHA-1 of its body, as it came
