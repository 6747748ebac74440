"""The child processes beside a crawl that index and store what comes in, as the crawl sees them.

The one that indexes parses what may be a stranger's, and is confined to the collection; the one that stores
has the databases' passwords, and runs if there are rules for it.

Each starts with the first commit that has work for it, or at the end of a run without one: an earlier run
may have been killed before its own children were done. They end after the crawl. If one fails, the crawl
continues; the rest is done by the next crawl or by hand.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from sterna.api.followers import INDEX, STORAGE, Report
from sterna.errors import command, one_line
from sterna.home.crawl import Run
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options
from sterna.model import Parcel
from sterna.runtime.cell.confined_process import environment

LEAVE_SECONDS = 10.0
LOOK_SECONDS = 0.5
_LINE_BYTES, _MOST_WARNINGS = 65_536, 1_000  # that are taken from a process
# -P keeps the working directory off the path, so that no module there is imported.
COMMAND = (sys.executable, "-P", "-m", "sterna", "follow")

Tell = Callable[[str], None]


@contextmanager
def attended(
    collection: CollectionFolder, options: Options, *, run: Run, warn: Tell, show: Tell
) -> Iterator[None]:
    """Starts the processes with the first commit of the run, and waits at the end for what is left.

    Ctrl-C, or an error of the crawl, leaves the rest for the next time.
    """
    children = _Children(collection, is_indexed=options.index, warn=warn, show=show)
    on_parcels = run.on_parcels

    def take(parcels: tuple[Parcel, ...]) -> bool:
        children.note_commit()
        return on_parcels(parcels)

    run.on_parcels = take
    try:
        yield
    except BaseException:
        children.leave()
        raise
    children.finish()


class _Children:
    """The processes of one crawl, and the line that shows how much they have left."""

    def __init__(self, collection: CollectionFolder, *, is_indexed: bool, warn: Tell, show: Tell) -> None:
        self._collection = collection
        self._is_indexed = is_indexed
        self._warn = warn
        self._show = show
        self._begun: dict[str, _Child] = {}
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}  # as last reported; under the lock

    def note_commit(self) -> None:
        """Starts those that have something to do, each once."""
        for name, rest in self._rest().items():
            if name not in self._begun:
                self._begun[name] = _Child(name, self._collection, rest, warn=self._warn, show=self._take)

    def finish(self) -> None:
        """Waits until everything is done, also what an earlier run left; Ctrl-C leaves the rest."""
        if self._rest().keys() - self._begun and self._collection.snapshot().batch:
            self.note_commit()
        if not self._begun:
            return
        try:
            for child in self._begun.values():
                child.close()
            for child in self._begun.values():
                child.wait()
        except KeyboardInterrupt:
            self._show("")
            self.leave()
            self._warn(f"left for the next time: {self._by_hand()}")
            return
        self._show("")

    def leave(self) -> None:
        until = time.monotonic() + LEAVE_SECONDS
        for child in self._begun.values():
            child.terminate()
        for child in self._begun.values():
            child.end(until)

    def _rest(self) -> dict[str, str]:
        """The commands that would do by hand what is to be done."""
        rest = {}
        if self._is_indexed:
            rest[INDEX] = command("index", self._collection.folder)
        if self._collection.storage_path.exists():
            rest[STORAGE] = command("storage", "run", self._collection.folder)
        return rest

    def _by_hand(self) -> str:
        return " and ".join(self._rest().values())

    def _take(self, name: str, left: int | None) -> None:
        """Shows what is left of all; the reports come in threads, None with the end of one."""
        with self._lock:
            if left is None:
                self._left.pop(name, None)
                return
            self._left[name] = left
            shown = ", ".join(
                f"{_WORK[each]}: {_amount(each, self._left[each])}" for each in sorted(self._left)
            )
            self._show(f"{shown} (Ctrl-C leaves the rest to: {self._by_hand()})")


_WORK = {INDEX: "indexing", STORAGE: "storing"}
_DONE = {INDEX: "indexed", STORAGE: "stored"}


def _amount(name: str, left: int) -> str:
    if not left:
        return "nearly done"
    if name != INDEX:
        return f"{left:,} to go"
    return "1 page left" if left == 1 else f"{left:,} pages left"


class _Child:
    """A process that is started at once; a thread listens to it."""

    def __init__(
        self,
        name: str,
        collection: CollectionFolder,
        rest: str,
        *,
        warn: Tell,
        show: Callable[[str, int | None], None],
    ) -> None:
        self._name = name
        self._rest = rest
        self._warn = warn
        self._show = show
        self._process: subprocess.Popen[bytes] | None = None
        # Set by the listening thread. Its join() would not do: Ctrl-C in it makes a thread count as ended.
        self._ended = threading.Event()
        self._is_left = False
        self._warnings = 0  # changed by the thread alone, as is the next
        self._is_noted = False
        try:
            # A session of its own: Ctrl-C goes to the crawl, which ends this process in time, and what parses
            # a stranger's collection has no terminal.
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [*COMMAND, name, "--parent", str(os.getpid()), "--", str(collection.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=None if name == STORAGE else environment(),  # which may have passwords
                start_new_session=True,
            )
        except OSError as error:
            self._ended.set()
            self._warn(f"pages are not {_DONE[name]} ({error.strerror}); afterwards: {rest}")
            return
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def close(self) -> None:
        """Tells it that the crawl is over."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def wait(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            pass  # a Ctrl-C that arrives just before the wait is noticed only when it wakes

    def terminate(self) -> None:
        """Has it leave the rest."""
        self._is_left = True
        self.close()
        if self._process:
            self._process.terminate()

    def end(self, until: float) -> None:
        if self._process and not self._ended.wait(max(until - time.monotonic(), 0)):
            self._process.kill()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Passes on what the process reports, until it ends."""
        assert process.stdout
        stream, last_words = process.stdout, ""
        try:
            while line := stream.readline(_LINE_BYTES):
                try:
                    self._take(msgspec.json.decode(line, type=Report))
                except msgspec.MsgspecError:
                    last_words = one_line(line.decode(errors="replace").strip()) or last_words
            code = process.wait()
            is_known = self._is_left or (self._warnings and code > 0)
            if code and not is_known:
                reason = f"exit code {code}" + (f": {last_words}" if last_words else "")
                self._warn(f"pages are no longer {_DONE[self._name]} ({reason}); afterwards: {self._rest}")
        finally:
            self._show(self._name, None)
            self._ended.set()

    def _take(self, report: Report) -> None:
        if report.warning and self._warnings < _MOST_WARNINGS:
            self._warnings += 1
            self._warn(one_line(report.warning))
        if report.note and not self._is_noted:
            self._is_noted = True
            self._warn(one_line(report.note))
        if report.left is not None:
            self._show(self._name, report.left)
