"""What the manifest, which the ledger keeps, knows of the archive's files, and what others put into them."""

from pathlib import Path

from sterna.model import Record

TABLES = ("page", "link", "fact")


class Segment(Record, frozen=True):
    """A Parquet file as the manifest knows it."""

    name: str
    table: str
    rows: int
    size_bytes: int
    tier: int = 0


class WarcPosition(Record, frozen=True):
    """A WARC file as the manifest knows it."""

    name: str
    committed_bytes: int
    is_open: bool


class FactRow(Record, frozen=True, kw_only=True):
    """A fact as the archive has it: who brought it, and its slots as JSON."""

    crawler: str
    site: str
    visit: str
    template: str
    data: str
    received: float | None  # None where nobody noted it


class Batch(Record, frozen=True, kw_only=True):
    """What is committed together: its number, who brought it, and how each of its pages came."""

    number: int
    crawler: str
    visits: tuple[str, ...]  # of the pages, in their order
    again: tuple[bool, ...]  # of the pages; False: the URL was never stored before


class Snapshot(Record, frozen=True, kw_only=True):
    """What of the archive is committed at one moment.

    The files stay for two minutes after they were merged into others: who needs longer takes a new one.
    """

    tables: dict[str, tuple[Path, ...]]  # page, link, fact: the files, in the order of their names
    batch: int  # the last one; 0: there is none. Files may hold later rows: they are no part of it
