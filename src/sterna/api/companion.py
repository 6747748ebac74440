"""The child process beside a crawl that indexes and stores what comes in, as the crawl sees it.

It starts with the first commit, or at the end of a run without one: an earlier run may have been killed
before its own child was done. It ends after the crawl. If it fails, the crawl continues; the rest is done by
the next crawl or by hand.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from sterna.api.followers import INDEX, Report
from sterna.errors import command
from sterna.home.crawl import Run
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options
from sterna.model import Parcel

LEAVE_SECONDS = 10.0
LOOK_SECONDS = 0.5
# -P keeps the working directory off the path, so that no module there is imported.
COMMAND = (sys.executable, "-P", "-m", "sterna", "follow")

Tell = Callable[[str], None]


@contextmanager
def attended(
    collection: CollectionFolder, options: Options, *, run: Run, warn: Tell, show: Tell
) -> Iterator[None]:
    """Starts the process with the first commit of the run, and waits at the end for what is left.

    Ctrl-C, or an error of the crawl, leaves the rest for the next time.
    """
    child = _Child(collection, is_indexed=options.index, warn=warn, show=show)
    on_parcels = run.on_parcels

    def take(parcels: tuple[Parcel, ...]) -> bool:
        child.note_commit()
        return on_parcels(parcels)

    run.on_parcels = take
    try:
        yield
    except BaseException:
        child.leave()
        raise
    child.finish()


class _Child:
    def __init__(self, collection: CollectionFolder, *, is_indexed: bool, warn: Tell, show: Tell) -> None:
        self._collection = collection
        self._is_indexed = is_indexed
        self._warn = warn
        self._show = show
        self._has_begun = False
        self._process: subprocess.Popen[bytes] | None = None
        # Set by the listening thread. Its join() would not do: Ctrl-C in it makes a thread count as ended.
        self._ended = threading.Event()
        self._is_left = False
        self._has_warned = False  # changed by the thread alone

    def note_commit(self) -> None:
        """Starts the process, once and if there is anything for it to do."""
        if self._has_begun or not self._rest():
            return
        self._has_begun = True
        command = [*COMMAND, "--parent", str(os.getpid()), *([] if self._is_indexed else ["--no-index"])]
        try:
            # A process group of its own: Ctrl-C goes to the crawl, which ends this process in time.
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [*command, "--", str(self._collection.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        except OSError as error:
            self._warn(f"pages are not indexed and stored ({error.strerror}); afterwards: {self._rest()}")
            return
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def finish(self) -> None:
        """Waits until everything is done, also what an earlier run left; Ctrl-C leaves the rest."""
        if not self._has_begun and self._rest() and self._collection.snapshot().batch:
            self.note_commit()
        if self._process is None:
            return
        try:
            self._close()
            while not self._ended.wait(LOOK_SECONDS):
                pass  # a Ctrl-C that arrives just before the wait is noticed only when it wakes
        except KeyboardInterrupt:
            self._show("")
            self.leave()
            self._warn(f"left for the next time: {self._rest()}")
            return
        self._show("")

    def leave(self) -> None:
        if self._process is None:
            return
        self._is_left = True
        self._close()
        self._process.terminate()
        if not self._ended.wait(LEAVE_SECONDS):
            self._process.kill()

    def _close(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def _rest(self) -> str:
        """The commands that would do the same by hand."""
        commands = {
            command("index", self._collection.folder): self._is_indexed,
            command("storage", "run", self._collection.folder): self._collection.storage_path.exists(),
        }
        return " and ".join(each for each, is_wanted in commands.items() if is_wanted)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Passes on what the process reports, until it ends."""
        assert process.stdout
        last_words = ""
        try:
            for line in process.stdout:
                try:
                    self._take(msgspec.json.decode(line, type=Report))
                except msgspec.MsgspecError:
                    last_words = line.decode(errors="replace").strip() or last_words
            code = process.wait()
            is_known = self._is_left or (self._has_warned and code > 0)
            if code and not is_known:
                reason = f"exit code {code}" + (f": {last_words}" if last_words else "")
                self._warn(f"pages are no longer indexed and stored ({reason}); afterwards: {self._rest()}")
        finally:
            self._ended.set()

    def _take(self, report: Report) -> None:
        if report.warning:
            self._has_warned = True
            self._warn(report.warning)
        shown = []
        for name, count in report.left.items():
            if name == INDEX:
                amount = "1 page left" if count == 1 else f"{count:,} pages left"
            else:
                amount = f"{count:,} to go"
            work = "indexing" if name == INDEX else "storing"
            shown.append(f"{work}: {amount if count else 'nearly done'}")
        if shown:
            self._show(f"{', '.join(shown)} (Ctrl-C leaves the rest to: {self._rest()})")
