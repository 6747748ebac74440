"""Indexes an archive and commits each batch, until it is killed: python -m tests.search.dying FOLDER."""

import sys
import threading
from pathlib import Path

from sterna.archive.manifest import Snapshot
from sterna.search import indexer


def main() -> None:
    folder = Path(sys.argv[1])
    paths = tuple(sorted((folder / "segments").glob("*.page.parquet")))
    indexer.COMMIT_SECONDS = 0.0
    indexer.COMMIT_SHARE = 0
    with indexer.Indexer(folder / "index") as writer:
        for batch in range(max(writer.batch, 0) + 1, len(paths) + 1):
            writer.catch_up(Snapshot(tables={"page": paths}, batch=batch), stop=threading.Event())
            sys.stdout.write(f"{writer.batch}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
