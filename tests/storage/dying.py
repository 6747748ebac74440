"""Stores what comes in, until it is killed: see `tests.killing`."""

import os
import threading
from pathlib import Path

from tests.killing import fork_on_demand

from sterna.api.storage import open_manager
from sterna.home.folder import CollectionFolder


def store(folder: Path) -> None:
    collection, stop = CollectionFolder(folder), threading.Event()
    with open_manager(collection, environ=os.environ, warn=print) as manager:
        while True:
            manager.catch_up(collection.snapshot(), stop=stop)
            stop.wait(0.01)


if __name__ == "__main__":
    fork_on_demand(store)
