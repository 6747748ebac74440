"""The process in which an engine runs: questions in, answers out, until the line ends.

`prepare` is called before the jail is closed, because it starts a thread; then `serve` with the one socket.
"""

import gc
import os
import socket
import threading
import time

from sterna.errors import RulesError, SternaError
from sterna.model import Ended
from sterna.runtime.engine.clips import Clips
from sterna.runtime.engine.engine import RuleEngine
from sterna.runtime.engine.messages import (
    HEAD_BYTES,
    Admit,
    Admitted,
    Answer,
    Change,
    Changed,
    EngineLimits,
    Judge,
    Over,
    Question,
    Ready,
    Start,
    Stopped,
    Verdict,
    Verdicts,
    frame_size,
    framed,
    read_question,
)
from sterna.runtime.forker import EXIT_MEMORY

LOOK_SECONDS = 0.05  # between two looks at the time
FLUSH_SECONDS = 0.1  # the host hears of an engine that is not stuck at least so often, and once a page
FLUSH_BYTES = 1024 * 1024
GARBAGE_OBJECTS = 100_000


class Watchdog:
    """A thread that stops an engine softly when its time is over."""

    def __init__(self) -> None:
        self._is_awake = threading.Event()
        self._engine: RuleEngine | None = None
        self._limits = EngineLimits(page_seconds=0.0, cpu_seconds=0.0, facts=0, scratch_bytes=0)
        self._deadline = 0.0
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def begin(self, engine: RuleEngine, limits: EngineLimits) -> None:
        """Watches this engine, whenever it is awake."""
        self._engine, self._limits = engine, limits

    def wake(self) -> None:
        """The time of a page begins."""
        self._deadline = time.monotonic() + self._limits.page_seconds
        self._is_awake.set()

    def rest(self) -> None:
        """The page is done."""
        self._is_awake.clear()

    def _watch(self) -> None:
        while self._is_awake.wait():
            time.sleep(LOOK_SECONDS)
            if self._is_awake.is_set() and self._engine:
                self._look(self._engine)

    def _look(self, engine: RuleEngine) -> None:
        limits = self._limits
        if limits.cpu_seconds and time.process_time() > limits.cpu_seconds:
            engine.stop(Ended.CPU_SECONDS, f"more than {limits.cpu_seconds:g} seconds of computing")
        elif time.monotonic() > self._deadline:
            engine.stop(Ended.WALL_SECONDS, f"one page took more than {limits.page_seconds:g} seconds")


def _die_of_memory() -> None:
    os._exit(EXIT_MEMORY)


# Made in the warm parent, so that no cell has to; and made in a cell before its jail is closed.
_warm = [Clips(out_of_memory=_die_of_memory)]
_prepared: list[Watchdog] = []


def prepare() -> None:
    """Starts the watchdog, for which it is too late in the jail."""
    gc.set_threshold(GARBAGE_OBJECTS)  # a page makes many objects and no cycles
    _prepared.append(Watchdog())


def serve(sock: socket.socket) -> None:
    """Answers until the host closes the line, or the engine cannot go on."""
    line = _Line(sock)
    try:
        _answer_all(line, _prepared[0] if _prepared else Watchdog())
    except RulesError as error:
        line.send(Over(Ended.RULES, str(error)))
    except (SternaError, ValueError) as error:
        line.send(Over(Ended.CRASH, str(error)))
    except (EOFError, ConnectionError):
        return


def _answer_all(line: "_Line", watchdog: Watchdog) -> None:
    start = line.receive()
    if not isinstance(start, Start):
        raise ValueError("the first message must be the start")
    clips = _warm.pop() if _warm else Clips(out_of_memory=_die_of_memory)
    engine = RuleEngine(start, clips, tell_stopped=lambda: line.send(Stopped()))
    watchdog.begin(engine, start.limits)
    watchdog.wake()
    first = engine.begin(start.state, start.facts)
    watchdog.rest()
    line.send(Ready(first, engine.asks_before_fetch, time.process_time()))
    del start, first
    while True:
        _answer(line, watchdog, engine, line.receive())


def _answer(line: "_Line", watchdog: Watchdog, engine: RuleEngine, question: Question) -> None:
    match question:
        case Judge():
            _judge(line, watchdog, engine, question)
        case Admit():
            line.send(_admit(watchdog, engine, question))
        case Change():
            line.send(Changed(engine.change(), time.process_time()))
        case _:
            raise ValueError("a second start")


def _judge(line: "_Line", watchdog: Watchdog, engine: RuleEngine, question: Judge) -> None:
    """Answers for all pages, or until the engine is stopped; in parts, so that the host knows it is alive."""
    ready: list[Verdict] = []
    size, begun = 0, time.monotonic()
    for view in question.pages:
        watchdog.wake()
        verdict = engine.judge(view)
        watchdog.rest()
        ready.append(verdict)
        size += sum(map(len, verdict.rows)) + sum(len(url) for url, _ in verdict.follow)
        if engine.ended:
            break
        if size > FLUSH_BYTES or time.monotonic() - begun > FLUSH_SECONDS:
            line.send(Verdicts(tuple(ready), time.process_time()))
            ready, size, begun = [], 0, time.monotonic()
    if ready:
        line.send(Verdicts(tuple(ready), time.process_time()))


def _admit(watchdog: Watchdog, engine: RuleEngine, question: Admit) -> Admitted:
    admits: list[bool] = []
    log: list[str] = []
    for request in question.requests:
        watchdog.wake()
        is_admitted, lines = engine.admits(request)
        watchdog.rest()
        admits.append(is_admitted)
        log += lines
    return Admitted(tuple(admits), tuple(log), time.process_time(), engine.ended, engine.detail)


class _Line:
    """Frames on a socket that blocks; only plain reads and writes, which a jail allows."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> Question:
        return read_question(self._read(frame_size(self._read(HEAD_BYTES))))

    def send(self, answer: Answer) -> None:
        self._sock.sendall(framed(answer))

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._sock.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return bytes(data)
