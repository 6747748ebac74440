"""What the manifest, which the ledger keeps, knows of the archive's files."""

from sterna.model import Record


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
