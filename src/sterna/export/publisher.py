"""A process that gives output its place, for one that is confined and can write nowhere but on its bench.

The confined process may have been taken over by the collection that it reads. So it names an entry of its
bench and the name that this is to get; where both lie was decided before. Another such process pins segments,
which is to give them a second name.
"""

import os
import re
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from sterna.errors import StorageError, UsageError
from sterna.model import Record

MakeBench = Callable[[Path], AbstractContextManager[Path]]
Move = Callable[[Path, Path, bool], None]
_MAX_BYTES = 16 * 1024
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # it ends with the other process


class Order(Record, frozen=True):
    made: str
    name: str
    force: bool


# From where to where an order moves something, of this place and with this bench; None if it must not.
PathsOf = Callable[[Order, Path, Path], tuple[Path, Path] | None]


class _Answer(Record, frozen=True):
    error: str = ""
    is_usage: bool = False  # otherwise the error is the disk's
    bench: str = ""


_encode = msgspec.msgpack.Encoder().encode
_ORDER, _ANSWER = msgspec.msgpack.Decoder(Order), msgspec.msgpack.Decoder(_Answer)


class Publisher:
    """The end of the process that makes the output of one place, on a bench that the other end made.

    Start it while there is one thread, and before anything of a stranger is read.
    """

    def __init__(self, place: Path, make_bench: MakeBench, move: Move, *, paths_of: PathsOf) -> None:
        self.place = place
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = os.fork()
        if self._process == 0:
            try:
                self._channel.close()
                for number in _IGNORED:
                    signal.signal(number, signal.SIG_IGN)
                with suppress(ConnectionError):  # the other process was killed
                    _serve(theirs, place, make_bench, move, paths_of)
            finally:
                os._exit(0)
        theirs.close()
        try:
            self.bench = Path(self._answer().bench)
        except BaseException:
            self.close()
            raise

    def move(self, made: Path, place: Path, force: bool) -> None:
        """Has it moved; errors are those of the other process."""
        with suppress(BrokenPipeError):  # then there is no answer either
            self._channel.send(_encode(Order(made.name, place.name, force)))
        self._answer()

    def _answer(self) -> _Answer:
        data = b""
        with suppress(ConnectionResetError):  # it was killed before it read the order
            data = self._channel.recv(_MAX_BYTES)
        if not data:
            raise StorageError(
                f"cannot write {self.place}: the process that does it was killed; run the same command again"
            )
        answer = _ANSWER.decode(data)
        if answer.error:
            raise (UsageError if answer.is_usage else StorageError)(answer.error)
        return answer

    def close(self) -> None:
        """Waits until the bench is gone."""
        with suppress(OSError):  # it was killed
            self._channel.shutdown(socket.SHUT_RDWR)  # a process that was forked later holds the channel, too
        self._channel.close()
        os.waitpid(self._process, 0)


def output_paths(order: Order, place: Path, bench: Path) -> tuple[Path, Path] | None:
    """An entry of the bench gets the name of the place, or of a part of it, such as of a sitemap."""
    stem, dot, suffix = place.name.partition(".")
    names = rf"{re.escape(stem)}(?:-[0-9]+)?{re.escape(dot + suffix)}"
    if re.fullmatch(names, order.name) and _is_entry(bench, order.made):
        return bench / order.made, place.with_name(order.name)
    return None


def pinned_paths(order: Order, place: Path, bench: Path) -> tuple[Path, Path] | None:
    """An entry of the folder is called the same on the bench."""
    return (place / order.made, bench / order.made) if _is_entry(place, order.made) else None


def _serve(channel: socket.socket, place: Path, make_bench: MakeBench, move: Move, paths_of: PathsOf) -> None:
    try:
        with make_bench(place) as bench:
            channel.send(_encode(_Answer(bench=str(bench))))
            while data := channel.recv(_MAX_BYTES):
                order = _ORDER.decode(data)
                if paths := paths_of(order, place, bench):
                    answer = _answer(*paths, order.force, move)
                else:
                    answer = _Answer(f"cannot write {place}: the command asked for another file")
                channel.send(_encode(answer))
    except (StorageError, UsageError) as error:
        channel.send(_encode(_Answer(str(error), isinstance(error, UsageError))))


def _is_entry(bench: Path, name: str) -> bool:
    """Whether the bench has a file or folder of this name; links lead elsewhere."""
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        return False
    try:
        mode = (bench / name).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _answer(made: Path, place: Path, force: bool, move: Move) -> _Answer:
    try:
        move(made, place, force)
    except (StorageError, UsageError) as error:
        return _Answer(str(error), isinstance(error, UsageError))
    return _Answer()
