"""The followers of a collection: they index and store what a crawl brings in, each in a process beside it."""

import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

import msgspec

from sterna.archive.manifest import Snapshot
from sterna.errors import SternaError, command
from sterna.home.folder import CollectionFolder

INDEX, STORAGE = "index", "storage"
_BY_HAND = {INDEX: ("index",), STORAGE: ("storage", "run")}
LOOK_SECONDS = 0.5
RETRY_SECONDS = 5.0  # after an error: another process may hold the index, or the disk may be full
TELL_SECONDS = 1.0
STOP_SECONDS = 5.0  # for what hangs, such as a database


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that the process writes for the crawl that started it."""

    warning: str = ""
    note: str = ""  # a warning that says nothing about how it ends; one at most
    left: int | None = None  # pages to be indexed, or batches to be stored; 0: about to end


class Follower(Protocol):
    """Commits its position together with its results, so that a crash cannot separate them."""

    @property
    def batch(self) -> int:
        """The last batch that it has processed."""

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        """Processes what came after it; returns early, and leaves the rest, when `stop` is set.

        Called repeatedly, also where nothing is new: it may have something of its own to retry.
        """

    def is_left(self, batch: int) -> bool:
        """Whether something up to this batch will not be done by closing it, because of trouble or not."""


Open = Callable[[], AbstractContextManager[Follower] | None]  # None: there is nothing to follow for


@dataclass(slots=True, eq=False)
class Pursuit:
    """Runs a follower, in a thread, until the crawl is over."""

    name: str
    open_follower: Open
    _: KW_ONLY
    take: Callable[[], Snapshot]
    wait: Callable[[float], bool]  # that many seconds, or until the crawl is over; returns whether it is
    stop: threading.Event
    warn: Callable[[str], None]
    by_hand: str  # the command that does what is left at the end
    # All of these are changed by run(), in its thread, and read by others.
    follower: Follower | None = None
    is_broken: bool = False  # ended by an unexpected error
    _trouble: str = ""
    _told: set[str] = field(default_factory=set)

    @property
    def batch(self) -> int:
        """The last batch that the follower has processed; -1: it is not open."""
        follower = self.follower
        return follower.batch if follower else -1

    def run(self) -> None:
        """Catches up until the crawl is over, and then with what came before its end."""
        is_over = is_left = False
        try:
            with ExitStack() as stack:
                while not self.stop.is_set():
                    before = self.batch
                    is_behind = self._catch_up(stack)
                    if is_over and not (is_behind and self.batch > before):
                        is_left = self.follower is not None and self.follower.is_left(self.take().batch)
                        break
                    is_over = self.wait(RETRY_SECONDS if self._trouble else LOOK_SECONDS)
        except Exception as error:
            self.is_broken = True
            self._tell(f"{self.name} ended: {type(error).__name__}: {error}")
            raise
        if self._trouble:
            self._tell(self._trouble)
        if (self._trouble or is_left) and not self.stop.is_set():
            self._tell(f"{self.name}: not complete; the rest is done by: {self.by_hand}")

    def _catch_up(self, stack: ExitStack) -> bool:
        """True if the follower has not processed everything."""
        try:
            if self.follower is None:
                opened = self.open_follower()
                if opened is None:
                    return False
                self.follower = stack.enter_context(opened)
            snapshot = self.take()
            self.follower.catch_up(snapshot, stop=self.stop)
        except SternaError as error:
            self.follower = None
            stack.close()
            text = f"{self.name}: {error}"
            if text == self._trouble:  # only what lasts is told: the first failure is silent
                self._tell(text)
            self._trouble = text
            return False
        self._trouble = ""
        return self.follower.batch < snapshot.batch

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.warn(text)


class Company:
    """Keeps a follower beside a crawl, and ends it when the crawl is over or was killed."""

    def __init__(
        self,
        name: str,
        collection: CollectionFolder,
        open_follower: Open,
        *,
        say: Callable[[Report], None],
        parent: int | None,
    ) -> None:
        """`parent` is the process id of the crawl: if it dies, the follower stops at once."""
        self._collection = collection
        self._say = say
        self._parent = parent
        self._over = threading.Event()  # the crawl is
        self._stopped = threading.Event()
        self._pursuit = Pursuit(
            name,
            open_follower,
            take=collection.snapshot,
            wait=self._over.wait,
            stop=self._stopped,
            warn=lambda text: say(Report(warning=text)),
            by_hand=command(*_BY_HAND[name], collection.folder),
        )
        self._thread = threading.Thread(target=self._pursuit.run, daemon=True)

    def stop(self) -> None:
        """Ends it; what is left is done the next time."""
        self._stopped.set()
        self._over.set()

    def run(self) -> bool:
        """Returns when it is done; False if it failed unexpectedly."""
        self._thread.start()
        while self._thread.is_alive() and not self._over.is_set():
            ready, _, _ = select.select([0], [], [], LOOK_SECONDS)
            if ready and not os.read(0, 4096):
                self._over.set()  # standard input is closed
            self._check_parent()
        told_at = time.monotonic()
        while self._thread.is_alive() and not self._stopped.is_set():
            self._thread.join(LOOK_SECONDS)
            self._check_parent()
            if time.monotonic() - told_at >= TELL_SECONDS:
                self._tell_left()
                told_at = time.monotonic()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            os._exit(1)  # it hangs; what it has not committed does not count
        return not self._pursuit.is_broken

    def _check_parent(self) -> None:
        """A crawl that was killed closes standard input too, but nothing waits for the rest."""
        if self._parent is not None and os.getppid() != self._parent:
            self.stop()

    def _tell_left(self) -> None:
        from sterna.archive.arrivals import count  # noqa: PLC0415 - Arrow takes a while to load

        if not (self._thread.is_alive() and self._pursuit.follower):
            return
        with suppress(SternaError):  # only a report; the follower itself reports what is wrong
            snapshot, batch = self._collection.snapshot(), self._pursuit.batch
            left = snapshot.batch - batch
            if self._pursuit.name == INDEX:
                left = count(snapshot.tables["page"], after=batch, upto=snapshot.batch)
            self._say(Report(left=left))


def open_index(collection: CollectionFolder) -> AbstractContextManager[Follower]:
    from sterna.search.indexer import Indexer  # noqa: PLC0415 - slow to load

    return Indexer(collection.index_folder)


def open_storage(
    collection: CollectionFolder, *, environ: Mapping[str, str], warn: Callable[[str], None]
) -> AbstractContextManager[Follower] | None:
    """What applies the rules of storage; None without any."""
    if not collection.storage_path.exists():
        return None
    collection.check_links()
    from sterna.api.storage import open_manager  # noqa: PLC0415 - slow to load

    return open_manager(collection, environ=environ, warn=warn)
