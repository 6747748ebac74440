"""Stores what comes in, until it is killed: see `tests.killing`."""

import os
import threading
from pathlib import Path

from tests.killing import fork_on_demand

from sterna.home.folder import CollectionFolder
from sterna.storage.manager import Manager


def store(folder: Path) -> None:
    collection, stop = CollectionFolder(folder), threading.Event()
    manager = Manager(folder, collection=collection.id(), take=collection.snapshot, environ=os.environ)
    with manager:
        while True:
            manager.catch_up(collection.snapshot(), stop=stop)
            stop.wait(0.01)


if __name__ == "__main__":
    fork_on_demand(store)
