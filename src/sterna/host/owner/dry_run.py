"""What would leave for a crawler: a visit as the host would carry it out, told in lines instead of sent.

Each parcel is packed as for the line, compressed and sealed to be measured, and unpacked again as its home
would do it: what the lines tell is what a home would read.
"""

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from sterna.crawler.facts import decode, to_json
from sterna.errors import JailError, Refused, UsageError, WireError
from sterna.host.config import HostConfig
from sterna.host.policy.terms import Terms
from sterna.host.site.source import ShieldedFetcher
from sterna.host.visiting.accepting import visit_of
from sterna.host.visiting.hosted import MAX_LINES
from sterna.host.visiting.workshop import Workshop
from sterna.model import Ended, Links, Page, Parcel, Raw, Record, Target, Usage, Visit
from sterna.runtime.cell.jail import protection
from sterna.web.clock import Clock
from sterna.wire.known import Marks
from sterna.wire.orders import Send
from sterna.wire.parcels import Unpacker, as_sent, pack_parcel
from sterna.wire.stream import StreamWriter

_rules_log = logging.getLogger("sterna.runtime.handler")

Write = Callable[[dict[str, object]], None]  # takes a line of what would leave


class DryRun(Record, frozen=True, array_like=False, kw_only=True):
    """What would have left, in sum."""

    crawler: str
    site: str
    ended: Ended
    pages: int
    kept: int  # of the pages, those of which more than their address would leave
    requests: int
    read_bytes: int  # from the web server; files of a document root do not count
    page_bytes: int  # of all pages that were read, as they are
    plain_bytes: int  # that would leave, before compression
    sent_bytes: int  # compressed and sealed, but for the few hundred at the end
    parcels: int
    lines: dict[str, int]  # by their kind
    cpu_seconds: float
    seconds: float


async def dry_run(
    order: Send,
    *,
    config: HostConfig,
    terms: Terms,
    clock: Clock,
    write: Write,
    stop: asyncio.Event,
) -> DryRun:
    """Carries the order out under these terms; UsageError if the host would refuse it.

    Nothing is asked of anybody but the site, and nothing is kept but what `write` keeps.
    """
    try:
        visit = visit_of(order, config=config, terms=terms, grants=order.budget)
    except (Refused, WireError) as error:
        raise UsageError(f"the host would refuse this crawler: {error.detail or error.problem}") from error
    if visit.crawler.program.rules and not protection().has_seccomp:
        raise JailError("the host would refuse this crawler: it has rules, and this machine has no seccomp")
    began = clock.now()
    telling = _Telling(visit, level=min(order.level, config.limits.level), clock=clock, write=write)
    workshop = Workshop(config, clock)
    try:
        with _rules_told(telling.line):
            async with workshop.use() as runtime:
                await runtime.carry_out(
                    visit,
                    deliver=telling.take,
                    stop=stop,
                    through=lambda fetcher: ShieldedFetcher(fetcher, lambda: terms.closed),
                )
    finally:
        await workshop.close()
    return telling.sum(clock.now() - began)


class _Telling:
    """Takes parcels in the place of the line."""

    def __init__(self, visit: Visit, *, level: int, clock: Clock, write: Write) -> None:
        self._visit = visit
        self._clock = clock
        self._write = write
        self._marks = Marks(visit.known)
        self._unpacker = Unpacker(visit, self._marks)
        self._stream = StreamWriter(secrets.token_bytes(32), level=level)
        # Changed by take(), of which one runs at a time; line() only adds to what is written.
        self._sent_bytes = len(self._stream.begin())
        self._plain_bytes = 0
        self._page_bytes = 0
        self._parcels = 0
        self._usage = Counter[str]()
        self._cpu_seconds = 0.0
        self._lines = Counter[str]()
        self._written: deque[str] = deque(maxlen=MAX_LINES)  # by rules, since the last parcel
        self._ended: Ended | None = None

    async def take(self, parcel: Parcel) -> None:
        """A parcel that would go into the stream."""
        packed = await asyncio.to_thread(self._pack, parcel)
        self._tell_written()
        self._plain_bytes += len(packed)
        self._page_bytes += sum(page.size for page in parcel.pages)
        self._parcels += 1
        self._ended = parcel.ended
        self._add(parcel.usage)
        for line in lines_of(self._unpacker.unpack(packed, now=self._clock.now())):
            self._tell(line)

    def line(self, text: str) -> None:
        """A line that the crawler's rules wrote: it goes to its home too."""
        self._written.append(text)

    def sum(self, seconds: float) -> DryRun:
        assert self._ended
        return DryRun(
            crawler=self._visit.crawler.name,
            site=self._visit.site,
            ended=self._ended,
            pages=self._usage["pages"],
            kept=self._usage["kept"],
            requests=self._usage["requests"],
            read_bytes=self._usage["bytes_received"],
            page_bytes=self._page_bytes,
            plain_bytes=self._plain_bytes,
            sent_bytes=self._sent_bytes,
            parcels=self._parcels,
            lines=dict(sorted(self._lines.items())),
            cpu_seconds=round(self._cpu_seconds, 3),
            seconds=round(seconds, 3),
        )

    def _pack(self, parcel: Parcel) -> bytes:
        packed = pack_parcel(as_sent(parcel, self._marks), self._marks)
        self._sent_bytes += len(self._stream.parcel(packed))
        return packed

    def _add(self, usage: Usage) -> None:
        for name in ("pages", "kept", "requests", "bytes_received"):
            self._usage[name] += getattr(usage, name)
        self._cpu_seconds += usage.cpu_seconds

    def _tell_written(self) -> None:
        while self._written:
            text = self._written.popleft()
            self._sent_bytes += len(self._stream.line(text))
            self._tell({"kind": "line", "text": text})

    def _tell(self, line: dict[str, object]) -> None:
        self._lines[str(line["kind"])] += 1
        self._write(line)


# -- lines -------------------------------------------------------------------------------------------------


def lines_of(parcel: Parcel) -> Iterator[dict[str, object]]:
    """All that is in a parcel, in lines of their kinds; what is empty or as usual is left out."""
    for page in parcel.pages:
        yield {"kind": "page", **_page(page)}
    yield from _targets("found", parcel.checkpoint.found)
    yield from _targets("outlink", parcel.outlinks)
    yield from _targets("again", parcel.checkpoint.again)
    if parcel.checkpoint.done:
        yield {"kind": "done", "fingerprints": list(parcel.checkpoint.done)}
    for data in parcel.rows:
        yield {"kind": "fact", "fact": _fact(data)}
    for number, data in parcel.state.added:
        yield {"kind": "own-fact", "number": number, "fact": _fact(data)}
    if parcel.state.removed:
        yield {"kind": "own-facts-removed", "numbers": list(parcel.state.removed)}
    if parcel.state.memory is not None:
        yield {"kind": "memory", "bytes": parcel.state.memory.hex()}
    yield {"kind": "usage", "parcel": parcel.number, **_unusual(parcel.usage)}
    if parcel.ended:
        yield {"kind": "ended", "why": parcel.ended.value}


def _page(page: Page) -> dict[str, object]:
    fields = _unusual(page)
    if page.links:
        fields["links"] = [_unusual(link) for link in page.links]
    if page.raw:
        fields["raw"] = {name: _plain(value) for name, value in msgspec.structs.asdict(page.raw).items()}
    return {"url": page.url, "status": page.status, **fields}


def _targets(kind: str, targets: Iterable[Target]) -> Iterator[dict[str, object]]:
    return ({"kind": kind, "url": target.url, **_unusual(target)} for target in targets)


def _unusual(record: msgspec.Struct) -> dict[str, object]:
    """The fields of a record that are not as they are by themselves."""
    fields = ((field, getattr(record, field.name)) for field in msgspec.structs.fields(type(record)))
    return {
        field.name: _plain(value)
        for field, value in fields
        if value != field.default and value not in ((), {}) and not isinstance(value, Links | Raw)
    }


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _fact(data: bytes) -> object:
    try:
        return msgspec.json.decode(to_json(decode(data)))
    except ValueError:
        return {"unreadable": data.hex()}


# -- what rules write --------------------------------------------------------------------------------------


class _RulesTold(logging.Filter):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.INFO:
            return True
        self._tell(record.getMessage())
        return False


@contextmanager
def _rules_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile lines that rules write are told."""
    told, level = _RulesTold(tell), _rules_log.level
    _rules_log.addFilter(told)
    _rules_log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _rules_log.removeFilter(told)
        _rules_log.setLevel(level)
