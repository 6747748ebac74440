"""Stores what comes in until somebody kills it: at each line of its input it has a new child do so.

The child is a copy of a process that has loaded everything already, so that a test can kill many of them.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import sterna.storage.sink  # noqa: F401 - loaded before the first child
from sterna.home.folder import CollectionFolder
from sterna.storage.manager import Manager


def store(folder: Path) -> None:
    collection, stop = CollectionFolder(folder), threading.Event()
    manager = Manager(folder, collection=collection.id(), take=collection.snapshot, environ=os.environ)
    with manager:
        while True:
            manager.catch_up(collection.snapshot(), stop=stop)
            stop.wait(0.01)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            sys.stdout = sys.stderr
            store(Path(sys.argv[1]))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
