"""Processes that claim to be engines: threads that answer as they like."""

import socket
import threading
from collections.abc import Callable

from sterna.model import Program, Source
from sterna.runtime.cell import frame
from sterna.runtime.cell.frame import HEAD_BYTES
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Death
from sterna.runtime.engine.client import Engine, Engines
from sterna.runtime.engine.messages import (
    MAX_REPLY_BYTES,
    EngineReply,
    EngineRequest,
    PageView,
    Ready,
    Verdict,
    read_request,
)

IMPATIENT = -0.9  # seconds for a page: with the grace of one second, a tenth remains


def framed(reply: EngineReply) -> bytearray:
    return frame.framed(reply, most_bytes=MAX_REPLY_BYTES)


class Impostor:
    """A process that is a thread here, and answers as it likes."""

    def __init__(self, answer: Callable[[EngineRequest], bytes | None]) -> None:
        self.socket, self._theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._answer = answer
        self.is_killed = False
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        with self._theirs:
            try:
                while head := self._theirs.recv(HEAD_BYTES, socket.MSG_WAITALL):
                    data = self._theirs.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                    answer = self._answer(read_request(data))
                    if answer is None:
                        return
                    self._theirs.sendall(answer)
            except (OSError, ValueError):
                return

    async def wait(self) -> Death:
        return Death(ended="exit", detail="exit code 3")

    def memory_bytes(self, *, is_peak: bool) -> int:
        return 0

    def kill(self) -> None:
        self.is_killed = True
        self.socket.shutdown(socket.SHUT_RDWR)


class Impostors:
    """Starts one impostor after the other."""

    def __init__(self, answer: Callable[[EngineRequest], bytes | None]) -> None:
        self._answer = answer
        self.last: Impostor | None = None
        self.limits: list[JailLimits] = []

    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Impostor:
        assert is_jailed
        self.limits.append(limits)
        self.last = Impostor(self._answer)
        return self.last


def after_ready(*answers: EngineReply | bytes | None) -> Callable[[EngineRequest], bytes | None]:
    """Is ready, then gives all answers at the next question."""
    said = iter([framed(Ready(Verdict(), True, 0.1))])

    def answer(_: EngineRequest) -> bytes | None:
        ready = next(said, None)
        if ready is not None:
            return bytes(ready)
        if answers == (None,):
            return None
        return b"".join(each if isinstance(each, bytes) else bytes(framed(each)) for each in answers if each)

    return answer


async def opened(
    answer: Callable[[EngineRequest], bytes | None], *, page_seconds: float = 5.0
) -> tuple[Engine, Impostors]:
    """An engine that is none, and who started it."""
    impostors = Impostors(answer)
    engines = Engines(starter=impostors, page_seconds=page_seconds)
    return await engines.open(Program(rules=(Source("rules.clp", ""),))), impostors


def view(number: int) -> PageView:
    return PageView(url=f"https://a.example/{number}")
