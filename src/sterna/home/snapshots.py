"""What of the archive is committed now, for those who follow it."""

from sterna.archive.manifest import TABLES, Snapshot
from sterna.home.folder import Collection
from sterna.home.ledger.sqlite.ledger import SqliteLedger


def take(collection: Collection) -> Snapshot:
    """The files and the last batch; a reader takes it beside whoever crawls."""
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        batch = ledger.batch()  # first: what is committed between the two lies after it
        segments = ledger.segments()
    finally:
        ledger.close()
    folder = collection.segments_folder
    tables = {
        name: tuple(folder / segment.name for segment in segments if segment.table == name) for name in TABLES
    }
    return Snapshot(tables=tables, batch=batch)
