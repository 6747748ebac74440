"""Indexes an archive and commits each batch, until it is killed: see `tests.killing`."""

import threading
from pathlib import Path

from tests.killing import fork_on_demand, report

from sterna.archive.manifest import Snapshot
from sterna.search import indexer


def index(folder: Path) -> None:
    paths = tuple(sorted((folder / "segments").glob("*.page.parquet")))
    indexer.COMMIT_SECONDS = 0.0
    indexer.COMMIT_SHARE = 0
    with indexer.Indexer(folder / "index") as writer:
        for batch in range(max(writer.batch, 0) + 1, len(paths) + 1):
            writer.catch_up(Snapshot(tables={"page": paths}, batch=batch), stop=threading.Event())
            report(str(writer.batch))


if __name__ == "__main__":
    fork_on_demand(index)
