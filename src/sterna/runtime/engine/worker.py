"""What runs in an engine's cell: requests in, replies out, until the host closes the line.

`prepare` is called before the cell is jailed, because it starts a thread; then `serve` with the one socket.
"""

import os
import socket
import threading
import time

import clips

from sterna.errors import RulesError, SternaError
from sterna.model import Ended, Target
from sterna.runtime.cell.forker import EXIT_MEMORY
from sterna.runtime.cell.frame import CellLine
from sterna.runtime.engine import messages
from sterna.runtime.engine.clips import Clips
from sterna.runtime.engine.engine import RuleEngine
from sterna.runtime.engine.messages import PageView, Verdict

LOOK_SECONDS = 0.05  # between two looks at the time
FLUSH_SECONDS = 0.1  # an engine that is not stuck replies at least so often, and once a page
FLUSH_BYTES = 1024 * 1024

Line = CellLine[messages.EngineRequest]


class Watchdog:
    """A thread that stops an engine softly when its time is over."""

    def __init__(self) -> None:
        self._is_awake = threading.Event()
        self._engine: RuleEngine | None = None
        self._page_seconds = self._cpu_seconds = 0.0  # set by begin()
        self._deadline = 0.0
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def begin(self, engine: RuleEngine, start: messages.Start) -> None:
        self._page_seconds, self._cpu_seconds = start.page_seconds, start.budget.cpu_seconds
        self._engine = engine

    def wake(self) -> None:
        self._deadline = time.monotonic() + self._page_seconds
        self._is_awake.set()

    def rest(self) -> None:
        self._is_awake.clear()

    def _watch(self) -> None:
        while self._is_awake.wait():
            time.sleep(LOOK_SECONDS)
            engine = self._engine
            if not self._is_awake.is_set() or engine is None:
                continue
            if self._cpu_seconds and time.process_time() > self._cpu_seconds:
                engine.stop(Ended.CPU_SECONDS, f"more than {self._cpu_seconds:g} seconds of computing")
            elif time.monotonic() > self._deadline:
                engine.stop(Ended.WALL_SECONDS, f"one page took more than {self._page_seconds:g} seconds")


def _die_of_memory() -> None:
    os._exit(EXIT_MEMORY)


# The first is made in the warm parent, so that no cell has to; the second in a cell before it is jailed.
_warm = [Clips(out_of_memory=_die_of_memory)]
_prepared: list[Watchdog] = []


def prepare(is_jailed: bool) -> None:
    """Starts the watchdog: in the jail no thread can be started."""
    _prepared.append(Watchdog())


def serve(sock: socket.socket) -> None:
    line = CellLine(
        sock, messages.read_request, most_in=messages.MAX_REQUEST_BYTES, most_out=messages.MAX_REPLY_BYTES
    )
    try:
        _answer_all(line, _prepared[0] if _prepared else Watchdog())
    except RulesError as error:
        line.send(messages.Over(Ended.RULES, str(error)))
    except (SternaError, ValueError) as error:
        line.send(messages.Over(Ended.CRASH, str(error)))
    except (EOFError, ConnectionError):
        return
    finally:
        line.close()


def _answer_all(line: Line, watchdog: Watchdog) -> None:
    start = line.receive()
    if not isinstance(start, messages.Start):
        raise ValueError("the first message must be the start")
    environment = _warm.pop() if _warm else Clips(out_of_memory=_die_of_memory)
    engine = RuleEngine(start, environment, tell_stopped=lambda: line.send(messages.Stopped()))
    watchdog.begin(engine, start)
    watchdog.wake()
    first = engine.begin(start.state, start.facts)
    watchdog.rest()
    line.send(messages.Ready(first, engine.asks_before_fetch, time.process_time()))
    del start, first
    while True:
        _answer(line, watchdog, engine, line.receive())


def _answer(line: Line, watchdog: Watchdog, engine: RuleEngine, request: messages.EngineRequest) -> None:
    """Of its own, so that no page is kept while the next request is awaited."""
    match request:
        case messages.Judge(pages):
            _judge(line, watchdog, engine, pages)
        case messages.Admit(requests):
            line.send(_admit(watchdog, engine, requests))
        case messages.Change():
            line.send(messages.Changed(engine.change(), time.process_time()))
        case _:
            raise ValueError("a second start")


def _judge(line: Line, watchdog: Watchdog, engine: RuleEngine, pages: tuple[PageView, ...]) -> None:
    """Answers for all pages, or until the engine is stopped; in parts, so that the host knows it is alive."""
    ready: list[Verdict] = []
    size, begun = 0, time.monotonic()
    for view in pages:
        watchdog.wake()
        verdict = engine.judge(view)
        watchdog.rest()
        ready.append(verdict)
        size += sum(map(len, verdict.rows)) + sum(len(url) for url, _ in verdict.follow)
        if engine.ended:
            break
        if size > FLUSH_BYTES or time.monotonic() - begun > FLUSH_SECONDS:
            line.send(messages.Verdicts(tuple(ready), time.process_time()))
            ready, size, begun = [], 0, time.monotonic()
    if ready:
        line.send(messages.Verdicts(tuple(ready), time.process_time()))


def _admit(watchdog: Watchdog, engine: RuleEngine, requests: tuple[Target, ...]) -> messages.Admitted:
    admits: list[bool] = []
    log: list[str] = []
    for view in requests:
        watchdog.wake()
        is_admitted, lines = engine.admits(view)
        watchdog.rest()
        admits.append(is_admitted)
        log += lines
    return messages.Admitted(tuple(admits), tuple(log), time.process_time(), engine.ended, engine.detail)


def serve_trial(sock: socket.socket) -> None:
    """Sends what CLIPS makes of one and two: `sterna doctor` measures how long that takes."""
    sock.sendall(str(clips.Environment().eval("(+ 1 2)")).encode())
