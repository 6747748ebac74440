"""The owner's way to a host that runs: a socket in its folder of state; one line of JSON in, one out."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from sterna.errors import LineBroken, SternaError, StorageError
from sterna.host.owner.status import UNDER_WAY, HostStatus, VisitStatus
from sterna.model import Record

CONTROL = "control"  # the socket's name in the folder of state
MAX_QUESTION_BYTES = 4 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
QUESTION_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # a visit that is stopped has some time to end softly
MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes


class Controlled(Protocol):
    """What a host lets its owner do: `Service`."""

    def status(self) -> HostStatus: ...

    async def stop_visit(self, visit: str) -> bool: ...

    async def stop_all(self) -> int: ...


class Question(Record, frozen=True, array_like=False, forbid_unknown_fields=True):
    """What the owner wants; `crawler` is a visit's id or a crawler's name."""

    ask: Literal["status", "stop", "stop-all"]
    crawler: str = ""


class Answer(Record, frozen=True, array_like=False, kw_only=True):
    """What the host says to it."""

    status: HostStatus | None = None
    stopped: tuple[VisitStatus, ...] = ()
    count: int = 0  # of visits that were stopped
    error: str = ""


# -- at the host -------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_control(service: Controlled, state: Path) -> AsyncIterator[None]:
    """Answers the owner as long as the context lasts; StorageError if the socket cannot be made."""
    listener = _listener(state / CONTROL)
    control = _Control(service)
    server = await asyncio.start_unix_server(control.answer, sock=listener, limit=MAX_QUESTION_BYTES)
    try:
        yield
    finally:
        server.close()
        (state / CONTROL).unlink(missing_ok=True)


class _Control:
    def __init__(self, service: Controlled) -> None:
        self._service = service

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question; whoever goes away meanwhile is not told."""
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(QUESTION_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError, ValueError):  # the last for a line that is too long
            return
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            question = msgspec.json.decode(line, type=Question)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Answer(error=f"this question cannot be: {error}")
        try:
            if question.ask == "status":
                return Answer(status=self._service.status())
            if question.ask == "stop-all":
                return Answer(count=await self._service.stop_all())
            return await self._stop(question.crawler)
        except SternaError as error:
            return Answer(error=str(error))

    async def _stop(self, crawler: str) -> Answer:
        wanted = meant(self._service.status(), crawler)
        done = await asyncio.gather(*(self._service.stop_visit(each.visit) for each in wanted))
        stopped = tuple(each for each, is_done in zip(wanted, done, strict=True) if is_done)
        return Answer(stopped=stopped, count=len(stopped))


def meant(status: HostStatus, crawler: str) -> list[VisitStatus]:
    """The visits under way that are called so: by their id, or else by their crawler's name."""
    under_way = [each for each in status.visits if each.state in UNDER_WAY]
    by_id = [each for each in under_way if each.visit == crawler]
    return by_id or [each for each in under_way if each.crawler == crawler]


def _listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # left behind by a host that was killed: this one has the folder's lock
        before = os.umask(0o177)
        try:
            with _short(path) as name:
                listener.bind(name)
        finally:
            os.umask(before)
    except OSError as error:
        listener.close()
        raise StorageError(f"{path} cannot be made: {error.strerror or error}") from error
    return listener


# -- at the owner's ----------------------------------------------------------------------------------------


def ask(state: Path, question: Question) -> Answer:
    """What the host that works in this folder says; LineBroken if none answers."""
    try:
        line = _exchange(state / CONTROL, msgspec.json.encode(question) + b"\n")
        return msgspec.json.decode(line, type=Answer)
    except PermissionError as error:
        raise LineBroken(f"the host in {state} is another user's: ask as that user, or as root") from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LineBroken(f"no host answers in {state}") from error


def _exchange(path: Path, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line_to_host:
        line_to_host.settimeout(ANSWER_SECONDS)
        with _short(path) as name:
            line_to_host.connect(name)
        line_to_host.sendall(line)
        pieces, size = [], 0
        while size <= MAX_ANSWER_BYTES and (piece := line_to_host.recv(1 << 16)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name by which the kernel takes the socket, however deep its folder lies."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
