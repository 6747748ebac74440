"""`sterna follow`: indexes and stores what a crawl brings in, in a process beside it that `crawl` starts."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.api.followers import LOOK_SECONDS, Follower, Open, Pursuit
from sterna.errors import SternaError
from sterna.home.folder import Collection
from sterna.home.snapshots import take

INDEX, STORAGE = "index", "storage"
NICE = 5  # the crawl comes first
TELL_SECONDS = 1.0
STOP_SECONDS = 5.0  # for what hangs, such as a database


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of its output, for the crawl that started it."""

    warning: str = ""
    left: dict[str, int] = {}  # pages to be indexed, batches to be stored; 0: about to end


def follow(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    index: Annotated[bool, typer.Option("--index/--no-index", help="Index pages, or only store.")] = True,
    parent: Annotated[
        int | None, typer.Option(metavar="PID", help="End at once when this is no longer the parent.")
    ] = None,
) -> None:
    """Index and store what a crawl brings in, until standard input is closed."""
    collection = Collection(folder)
    collection.check()
    os.nice(NICE)
    openers = {STORAGE: _storage(collection)}
    if index:
        openers[INDEX] = _index(collection)
    company = Company(collection, openers, parent=parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: company.stop())
    raise typer.Exit(0 if company.run() else 1)


def _index(collection: Collection) -> Open:
    def open_index() -> AbstractContextManager[Follower]:
        from sterna.search.indexer import Indexer  # noqa: PLC0415 - it takes a while to load

        return Indexer(collection.index_folder)

    return open_index


def _storage(collection: Collection) -> Open:
    def open_storage() -> AbstractContextManager[Follower] | None:
        if not collection.storage_path.exists():
            return None
        from sterna.storage.manager import Manager  # noqa: PLC0415 - it takes a while to load

        return Manager(
            collection.folder,
            collection=collection.id(),
            take=lambda: take(collection),
            environ=os.environ,
            warn=_warn,
        )

    return open_storage


class Company:
    """The followers of a collection, each in a thread of its own, and when they are to end."""

    def __init__(self, collection: Collection, openers: Mapping[str, Open], *, parent: int | None) -> None:
        self._collection = collection
        self._parent = parent
        self._over = threading.Event()  # the crawl is
        self._stopped = threading.Event()
        self._pursuits = [
            Pursuit(
                name,
                open_follower,
                take=lambda: take(collection),
                wait=self._over.wait,
                stop=self._stopped,
                warn=_warn,
            )
            for name, open_follower in openers.items()
        ]
        self._threads = [threading.Thread(target=each.run, daemon=True) for each in self._pursuits]

    def stop(self) -> None:
        """Has all of them leave the rest for another time."""
        self._stopped.set()
        self._over.set()

    def run(self) -> bool:
        """Returns when all of them are done; False if one of them broke."""
        for thread in self._threads:
            thread.start()
        while self._is_at_work() and not self._over.is_set():
            if _is_input_closed(LOOK_SECONDS):
                self._over.set()
            self._check_parent()
        told_at = time.monotonic()
        while self._is_at_work() and not self._stopped.is_set():
            self._join(LOOK_SECONDS)
            self._check_parent()
            if time.monotonic() - told_at >= TELL_SECONDS:
                self._tell_left()
                told_at = time.monotonic()
        self._join(STOP_SECONDS)
        if self._is_at_work():
            os._exit(1)  # what hangs cannot be asked; what it has not committed does not count
        return not any(pursuit.is_broken for pursuit in self._pursuits)

    def _check_parent(self) -> None:
        """A crawl that was killed closes standard input too, but nobody waits for the rest any more."""
        if self._parent is not None and os.getppid() != self._parent:
            self.stop()

    def _is_at_work(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def _tell_left(self) -> None:
        with suppress(SternaError):  # it is only told, and whoever needs the file says what is wrong with it
            at_work = zip(self._pursuits, self._threads, strict=True)
            left = {each.name: self._left(each) for each, thread in at_work if thread.is_alive()}
            _say(Said(left={name: count for name, count in left.items() if count is not None}))

    def _left(self, pursuit: Pursuit) -> int | None:
        """None where there is no follower."""
        from sterna.archive.arrivals import count  # noqa: PLC0415 - Arrow takes a while to load

        snapshot = take(self._collection)
        if not pursuit.is_on_its_way:
            return None
        if pursuit.name == INDEX:
            return count(snapshot.tables["page"], after=pursuit.batch, upto=snapshot.batch)
        return snapshot.batch - pursuit.batch


def _is_input_closed(seconds: float) -> bool:
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not os.read(0, 4096)


def _warn(text: str) -> None:
    _say(Said(warning=text))


def _say(said: Said) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()
