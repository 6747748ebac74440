"""What follows a crawl, as the crawl sees it: a child process that indexes and stores what comes in.

It starts with the first commit and ends after the crawl. Whatever becomes of it, the crawl goes on: what is
not done is done the next time, or by hand.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from sterna.cli.follow import INDEX, Said
from sterna.cli.numbers import plural
from sterna.home.folder import Collection
from sterna.home.options import Options
from sterna.model import Parcel

LEAVE_SECONDS = 10.0
LOOK_SECONDS = 0.5
# -P keeps the working directory off the path: what lies there is nobody's to run.
COMMAND = (sys.executable, "-P", "-m", "sterna.cli", "follow")

Tell = Callable[[str], None]
OnParcels = Callable[[tuple[Parcel, ...]], bool]  # True: it is enough


@contextmanager
def following(
    collection: Collection, options: Options, *, on_parcels: OnParcels | None, warn: Tell, show: Tell
) -> Iterator[OnParcels]:
    """Gives what is to be told of each commit, which tells `on_parcels`; waits at the end for what is left.

    Ctrl-C leaves the rest for the next time, and so does a crawl that ends by an error.
    """
    child = _Child(collection, is_indexed=options.index, warn=warn, show=show)

    def take(parcels: tuple[Parcel, ...]) -> bool:
        child.note_commit()
        return on_parcels is not None and on_parcels(parcels)

    try:
        yield take
    except BaseException:
        child.leave()
        raise
    child.finish()


class _Child:
    def __init__(self, collection: Collection, *, is_indexed: bool, warn: Tell, show: Tell) -> None:
        self._collection = collection
        self._is_indexed = is_indexed
        self._warn = warn
        self._show = show
        self._has_begun = False
        self._process: subprocess.Popen[bytes] | None = None
        # Set by the thread that listens. Its join() would not do: Ctrl-C in it makes a thread count as ended.
        self._ended = threading.Event()
        self._is_left = False
        self._has_warned = False  # changed by the thread alone

    def note_commit(self) -> None:
        """Starts the process, if somebody wants it and it never ran."""
        if self._has_begun or not self._wanted():
            return
        self._has_begun = True
        try:
            self._process = self._start()
        except OSError as error:
            self._warn(f"pages are not indexed and stored ({error.strerror}); afterwards: {self._rest()}")
            return
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def finish(self) -> None:
        """Waits until all is done; Ctrl-C leaves the rest."""
        if self._process is None:
            return
        try:
            self._close()
            while not self._ended.wait(LOOK_SECONDS):
                pass  # a Ctrl-C that comes just before it sleeps is noticed only when it wakes
        except KeyboardInterrupt:
            self._show("")
            self.leave()
            self._warn(f"left for the next time: {self._rest()}")
            return
        self._show("")

    def leave(self) -> None:
        """Has it end now."""
        if self._process is None:
            return
        self._is_left = True
        self._close()
        self._process.terminate()
        if not self._ended.wait(LEAVE_SECONDS):
            self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [*COMMAND, "--parent", str(os.getpid()), *([] if self._is_indexed else ["--no-index"])]
        # A group of its own: Ctrl-C is for the crawl, which ends it when it is time.
        return subprocess.Popen(  # noqa: S603 - our own
            [*command, "--", str(self._collection.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def _close(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def _wanted(self) -> list[str]:
        """The commands that would do the same by hand."""
        commands = {
            f"sterna index {self._collection.folder}": self._is_indexed,
            f"sterna storage run {self._collection.folder}": self._collection.storage_path.exists(),
        }
        return [command for command, is_wanted in commands.items() if is_wanted]

    def _rest(self) -> str:
        return " and ".join(self._wanted())

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        try:
            self._hand_on(process)
        finally:
            self._ended.set()

    def _hand_on(self, process: subprocess.Popen[bytes]) -> None:
        """Hands on what the process says, until it ends."""
        assert process.stdout
        last_words = ""
        for line in process.stdout:
            try:
                self._take(msgspec.json.decode(line, type=Said))
            except msgspec.MsgspecError:
                last_words = line.decode(errors="replace").strip() or last_words
        code = process.wait()
        is_told = self._is_left or (self._has_warned and code > 0)
        if code and not is_told:
            reason = f"exit code {code}" + (f": {last_words}" if last_words else "")
            self._warn(f"pages are no longer indexed and stored ({reason}); afterwards: {self._rest()}")

    def _take(self, said: Said) -> None:
        if said.warning:
            self._has_warned = True
            self._warn(said.warning)
        if said.left:
            shown = ", ".join(_shown(name, count) for name, count in said.left.items())
            self._show(f"{shown} (Ctrl-C leaves the rest to: {self._rest()})")


def _shown(name: str, count: int) -> str:
    if name == INDEX:
        return f"indexing: {plural(count, 'page')} left" if count else "indexing: nearly done"
    return f"storing: {count:,} to go" if count else "storing: nearly done"
