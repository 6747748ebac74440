"""What the manifest, which the ledger keeps, knows of the archive's files, and what others put into them."""

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
