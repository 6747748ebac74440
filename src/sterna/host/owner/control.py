"""How the owner controls a host: the doors, a file that closes it; and a socket for status and stops."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from sterna.errors import LineBroken, SternaError, StorageError
from sterna.host.files import make_folder, open_private
from sterna.host.owner.status import UNDER_WAY, HostStatus, VisitStatus
from sterna.model import Record
from sterna.wire.problems import Problem, problem

CONTROL = "control"  # the socket's name in the folder of state
CLOSED = "closed"  # the name of the file that closes the doors
MAX_REASON = 200
CLOSED_BYTES = 4 * MAX_REASON + 64  # of the file that are read: its longest reason and its second line
BY_OWNER = "the owner asks for it"
UNTIL = "until"  # begins the second line of the file, if the doors open by themselves
ASK_SECONDS = 3600.0  # until a home may ask again at closed doors
MAX_REQUEST_BYTES = 4 * 1024
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
REQUEST_SECONDS = 5.0
RESPONSE_SECONDS = 30.0  # a visit that is stopped has some time to end
MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes


class Closure(Record, frozen=True):
    """Why the owner stopped crawlers, and until when; None: until the owner opens the host again."""

    reason: str
    until: float | None = None

    @property
    def problem(self) -> Problem:
        """What homes are told."""
        return problem("stopped", self.reason, retry_after=ASK_SECONDS, until=self.until)


class Doors:
    """Open unless the file is there, which every process and every restart sees.

    This is not a row of the database, so that the owner can close the doors with `touch`, on a full disk, and
    beside a damaged database.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / CLOSED

    def closure(self) -> Closure | None:
        """Why and until when they are closed; None if they are open. An unreadable file closes them."""
        try:
            with self._path.open("rb") as file:
                text = file.read(CLOSED_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            return Closure(f"cannot read {self._path}: {error.strerror}")
        reason, _, until = text.partition(f"\n{UNTIL} ")
        closure = Closure(_one_line(reason) or BY_OWNER, _time_of(until))
        return closure if closure.until is None or closure.until > time.time() else None

    def close(self, reason: str = BY_OWNER, *, until: float | None = None) -> None:
        """Lets nobody in from now on, or until a time; StorageError if the file cannot be written."""
        make_folder(self._path.parent)
        beside = self._path.with_name(f"{CLOSED}.{os.getpid()}")
        try:
            beside.unlink(missing_ok=True)
            descriptor = open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                ending = "" if until is None else f"{UNTIL} {until:.0f}\n"
                file.write(f"{_one_line(reason)}\n{ending}".encode(errors="replace"))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            try:
                self._path.touch(mode=0o600)  # an empty file fits on a full disk, and closes them too
            except OSError:
                raise StorageError(f"cannot write {self._path}: {error.strerror}") from error

    def open(self) -> None:
        """Lets homes in again; StorageError if the file cannot be deleted."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot delete {self._path}: {error.strerror}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON]


def _time_of(text: str) -> float | None:
    """The time in seconds since 1970; None, which keeps the doors closed, for anything else."""
    if not text.endswith("\n"):
        return None  # digits may be missing
    digits = text.strip()
    return float(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


# -- the socket, at the host -------------------------------------------------------------------------------


class Controlled(Protocol):
    """What the owner can do with a running host: `Service`."""

    def status(self) -> HostStatus: ...

    async def stop_visits(
        self, wanted: Sequence[VisitStatus], closure: Closure
    ) -> tuple[VisitStatus, ...]: ...

    async def stop_all(self) -> int: ...


class ControlRequest(Record, frozen=True, array_like=False, forbid_unknown_fields=True):
    """A request of the owner; `crawler` is a visit's id or a crawler's name."""

    ask: Literal["status", "stop", "stop-all"]
    crawler: str = ""
    reason: str = BY_OWNER
    until: float | None = None


class ControlResponse(Record, frozen=True, array_like=False, kw_only=True):
    status: HostStatus | None = None
    stopped: tuple[VisitStatus, ...] = ()
    count: int = 0  # of visits that were stopped
    error: str = ""


@asynccontextmanager
async def open_control(service: Controlled, state: Path) -> AsyncIterator[None]:
    """Answers the owner while the context lasts; StorageError if the socket cannot be created."""
    listener = _listener(state / CONTROL)
    server = await asyncio.start_unix_server(partial(_serve, service), sock=listener, limit=MAX_REQUEST_BYTES)
    try:
        yield
    finally:
        server.close()
        (state / CONTROL).unlink(missing_ok=True)


async def _serve(service: Controlled, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request; a client that goes away is ignored."""
    with suppress(OSError, TimeoutError, ValueError), closing(writer):  # ValueError: the line is too long
        async with asyncio.timeout(REQUEST_SECONDS):
            line = await reader.readline()
        answer = await _answer(service, line)
        writer.write(msgspec.json.encode(answer) + b"\n")
        async with asyncio.timeout(REQUEST_SECONDS):
            await writer.drain()


async def _answer(service: Controlled, line: bytes) -> ControlResponse:
    try:
        request = msgspec.json.decode(line, type=ControlRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return ControlResponse(error=f"invalid request: {error}")
    try:
        if request.ask == "status":
            return ControlResponse(status=service.status())
        if request.ask == "stop-all":
            return ControlResponse(count=await service.stop_all())
        wanted = meant(service.status(), request.crawler)
        closure = Closure(_one_line(request.reason), request.until)
        stopped = await service.stop_visits(wanted, closure)
    except SternaError as error:
        return ControlResponse(error=str(error))
    return ControlResponse(stopped=stopped, count=len(stopped))


def meant(status: HostStatus, crawler: str) -> list[VisitStatus]:
    """The visits under way with this id, or else those with a crawler of this name."""
    under_way = [each for each in status.visits if each.state in UNDER_WAY]
    by_id = [each for each in under_way if each.visit == crawler]
    return by_id or [each for each in under_way if each.crawler == crawler]


def _listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # left by a host that was killed: this one holds the folder's lock
        before = os.umask(0o177)
        try:
            with _short(path) as name:
                listener.bind(name)
        finally:
            os.umask(before)
    except OSError as error:
        listener.close()
        raise StorageError(f"cannot create socket {path}: {error.strerror or error}") from error
    return listener


# -- the socket, at the owner -----------------------------------------------------------------------------


def ask(state: Path, request: ControlRequest) -> ControlResponse:
    """The response of the host that works in this folder; LineBroken if none answers, or if it fails."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(RESPONSE_SECONDS)
            with _short(state / CONTROL) as name:
                line.connect(name)
            line.sendall(msgspec.json.encode(request) + b"\n")
            response = bytearray()
            while len(response) <= MAX_RESPONSE_BYTES and (piece := line.recv(1 << 16)):
                response += piece
        answer = msgspec.json.decode(response, type=ControlResponse)
    except PermissionError as error:
        raise LineBroken(f"the host in {state} runs as another user: become that user, or root") from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LineBroken(f"no host answers in {state}") from error
    if answer.error:
        raise LineBroken(f"the host reports: {answer.error}")
    return answer


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for the socket within the kernel's limit, however deep its folder lies."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
