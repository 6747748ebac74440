"""A web, its names, a clock and readers that exist in memory only, for visits that take no real time."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tests import making

from sterna.errors import FetchError
from sterna.model import Etiquette, Parcel, Target, Visit
from sterna.runtime.access import Kit, RuntimeConfig
from sterna.runtime.engine.client import Engines
from sterna.runtime.notices import Notices
from sterna.runtime.reader import read
from sterna.runtime.readers import Readers, document_of
from sterna.runtime.runtime import Runtime
from sterna.web.bodies import DOCUMENT_ROOM_BYTES, BodyRoom
from sterna.web.document import Document, Fetched
from sterna.web.http import Request, Response
from sterna.web.politeness import NO_LIMITS, Gate, Limits

T = TypeVar("T")

SITE = "https://a.test"
ADDRESS = "93.184.215.14"
BEGIN = 1_000_000.0

Step = Response | FetchError
Script = dict[str, Step | Sequence[Step]]


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still while anybody works, and jumps to the next timer when all wait."""

    def __init__(self) -> None:
        self._selector_of_time = _JumpingSelector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.now += max(timeout, 0.0)
        return super().select(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs to the end in virtual time; whatever is still under way then is a leak, and fails the test."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_without_leaks(main))


async def _without_leaks(main: Coroutine[Any, Any, T]) -> T:
    try:
        return await main
    finally:
        for _ in range(10):  # what was cancelled last may end
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left behind: {left}"


class VirtualClock:
    """The loop's own time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, and when it started."""

    time: float
    request: Request

    @property
    def path(self) -> str:
        return self.request.url.removeprefix(SITE)


class FakeWeb:
    """Answers by script: a path of SITE or a URL, with an address in front where that matters, to its steps.

    Each request takes the next step and the last one for ever; what has no script is not found (404).
    """

    def __init__(
        self, script: Mapping[str, Step | Sequence[Step]], *, seconds: float | Mapping[str, float] = 0.0
    ) -> None:
        self._script = script
        self._seconds = seconds
        self._turns: dict[str, int] = {}
        self.log: list[Sent] = []
        self.most_at_once = 0
        self._now_open = 0

    def paths(self) -> list[str]:
        """What was asked for, in order, robots.txt left out."""
        return [sent.path for sent in self.log if sent.path != "/robots.txt"]

    def times(self, path: str) -> list[float]:
        """When a path was asked for, in seconds from the beginning."""
        return [round(sent.time - BEGIN, 3) for sent in self.log if sent.path == path]

    async def fetch(self, request: Request) -> Response:
        sent = Sent(asyncio.get_running_loop().time(), request)
        self.log.append(sent)
        self._now_open += 1
        self.most_at_once = max(self.most_at_once, self._now_open)
        told = self._seconds
        seconds = told.get(sent.path, 0.0) if isinstance(told, Mapping) else told
        try:
            await asyncio.sleep(seconds)
        finally:
            self._now_open -= 1
        step = self._step(sent)
        if isinstance(step, FetchError):
            raise step
        return step

    def _step(self, sent: Sent) -> Step:
        keys = (f"{sent.request.address} {sent.path}", sent.path)
        key = next((key for key in keys if key in self._script), None)
        if key is None:
            return reply(404)
        steps = self._script[key]
        if isinstance(steps, Response | FetchError):
            return steps
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return steps[min(turn, len(steps) - 1)]


def reply(status: int = 200, body: bytes | str = b"", **headers: str) -> Response:
    """A response; `content_type` stands for Content-Type."""
    content = body.encode() if isinstance(body, str) else body
    fields = {"content-type": "text/html"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return Response(
        status=status,
        head=f"HTTP/1.1 {status} Fake\r\n\r\n".encode(),
        body=content,
        headers=tuple(fields.items()),
        seconds=0.0,
        wire_bytes=len(content),
    )


def linking(*links: str) -> Response:
    """A page with these links."""
    return reply(body="".join(f'<a href="{link}">x</a>' for link in links))


def rules(text: str) -> Response:
    """A robots.txt."""
    return reply(body=text, content_type="text/plain")


class FakeResolver:
    """Finds ADDRESS for every name that has no entry; an entry without addresses is a failure."""

    def __init__(self, names: Mapping[str, Sequence[str]] | None = None) -> None:
        self._names = names or {}
        self.preferred: list[tuple[str, str]] = []

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        found = tuple(self._names.get(hostname, (ADDRESS,)))
        if not found:
            raise FetchError("dns", f"no address found for {hostname}: scripted")
        return found

    def prefer(self, hostname: str, address: str) -> None:
        self.preferred.append((hostname, address))


class FakeReaders:
    """Reads in this process, as slowly as it is told to; raises for the paths it is told to."""

    def __init__(self, failures: Mapping[str, Exception] | None = None, *, seconds: float = 0.0) -> None:
        self._failures = failures or {}
        self._seconds = seconds

    def begin(self) -> None:
        """Nothing has to be started."""

    async def start(self) -> None:
        """Nothing has to be started."""

    async def read(self, fetched: Fetched) -> Document:
        await asyncio.sleep(self._seconds)
        failure = self._failures.get(fetched.url.removeprefix(SITE))
        if failure:
            raise failure
        return document_of(read(fetched))

    def peak_memory_bytes(self) -> int:
        return 0


def make_kit(
    web: FakeWeb,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    read_failures: Mapping[str, Exception] | None = None,
    read_seconds: float = 0.0,
    limits: Limits = NO_LIMITS,
    connections: int = 100,
    engines: Engines | None = None,
    proxy: str = "",
    shares_holds: bool = True,
    notices: Notices | None = None,
) -> Kit:
    return Kit(
        clock=VirtualClock(),
        resolver=FakeResolver(names),
        fetcher=web,
        gate=Gate(limits),
        slots=asyncio.Semaphore(connections),
        bodies=BodyRoom(),
        documents=BodyRoom(DOCUMENT_ROOM_BYTES),
        readers=cast(Readers, FakeReaders(read_failures, seconds=read_seconds)),
        engines=engines or Engines(is_jailed=False),
        config=RuntimeConfig(proxy=proxy, shares_holds=shares_holds),
        notices=notices or Notices(),
    )


def polite(**fields: Any) -> Etiquette:
    """No delay unless one is given."""
    return Etiquette(**({"delay_seconds": 0.0, "response_factor": 0.0} | fields))


def visit_of(*starts: str | Target, **fields: Any) -> Visit:
    """A visit to SITE; a start may be a path."""
    targets = tuple(Target(SITE + each) if isinstance(each, str) else each for each in starts or ("/",))
    return making.visit(*targets, site=SITE, **({"id": "visit", "etiquette": polite()} | fields))


@dataclass(slots=True)
class Home:
    """Takes parcels, as slowly as it is told to."""

    seconds: float = 0.0
    failure: Exception | None = None
    parcels: list[Parcel] = field(default_factory=list)

    async def take(self, parcel: Parcel) -> None:
        await asyncio.sleep(self.seconds)
        if self.failure:
            raise self.failure
        self.parcels.append(parcel)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a visit came to."""

    web: FakeWeb
    parcels: list[Parcel]
    seconds: float
    turns: int  # of the loop: many of them are a visit that polls

    @property
    def last(self) -> Parcel:
        return self.parcels[-1]

    @property
    def pages(self) -> dict[str, tuple[int, str]]:
        """Path to status and error of every page that came home."""
        return {
            page.url.removeprefix(SITE): (page.status, page.error)
            for parcel in self.parcels
            for page in parcel.pages
        }

    @property
    def errors(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for parcel in self.parcels:
            for kind, count in parcel.usage.errors.items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    @property
    def page_count(self) -> int:
        return sum(parcel.usage.pages for parcel in self.parcels)

    @property
    def found(self) -> list[str]:
        return [
            target.url.removeprefix(SITE) for parcel in self.parcels for target in parcel.checkpoint.found
        ]


def carry_out(
    visit: Visit,
    web: FakeWeb,
    *,
    home: Home | None = None,
    stop_after: float | None = None,
    **kit: Any,
) -> Outcome:
    """Carries a visit out in virtual time; `stop_after` so many seconds home asks for its end."""
    taking = home or Home()

    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        stop = asyncio.Event()
        timer = loop.call_later(stop_after, stop.set) if stop_after is not None else None
        await Runtime(make_kit(web, **kit)).carry_out(visit, deliver=taking.take, stop=stop)
        if timer:
            timer.cancel()
        return Outcome(web, taking.parcels, loop.time() - BEGIN, loop._selector_of_time.turns)

    return run(main())
