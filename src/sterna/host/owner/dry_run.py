"""A dry run: what would leave the host for a crawler, written as lines instead of sent.

Each parcel is packed, compressed and sealed as for the network, to measure it, and unpacked as its home would
do: the lines hold what a home would read.
"""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing

import msgspec

from sterna.crawler.facts import decode, to_json
from sterna.errors import JailError, Refused, UsageError, WireError
from sterna.host.config import HostConfig
from sterna.host.policy.terms import Terms
from sterna.host.site.source import ShieldedFetcher
from sterna.host.visiting.hosted import MAX_LINES
from sterna.host.visiting.reception import visit_of
from sterna.host.visiting.workshop import Workshop, redirect_rules
from sterna.model import Ended, Links, Page, Parcel, Raw, Record, Target, Usage, Visit
from sterna.runtime.cell.jail import protection
from sterna.web.clock import Clock
from sterna.wire.known import marks_of
from sterna.wire.orders import Send
from sterna.wire.parcels import Unpacker, pack_parcel
from sterna.wire.stream import StreamWriter

Write = Callable[[dict[str, object]], None]  # takes a line


class DryRun(Record, frozen=True, array_like=False, kw_only=True):
    """What would have left, in sum."""

    crawler: str
    site: str
    ended: Ended
    pages: int
    kept: int  # of the pages, those of which more than the URL would leave
    requests: int
    read_bytes: int  # from the web server; files of a document root do not count
    page_bytes: int  # of all pages that were read
    plain_bytes: int  # that would leave, before compression
    sent_bytes: int  # compressed and sealed, without a few hundred at the end
    parcels: int
    lines: dict[str, int]  # by kind
    cpu_seconds: float
    seconds: float


async def dry_run(
    order: Send, *, config: HostConfig, terms: Terms, clock: Clock, write: Write, stop: asyncio.Event
) -> DryRun:
    """Carries out the order under these terms; UsageError if the host would refuse it.

    Requests go to the site alone, and nothing is kept but what `write` keeps.
    """
    try:
        visit = visit_of(order, config=config, terms=terms, grants=order.budget)
    except (Refused, WireError) as error:
        raise UsageError(f"the host would refuse this crawler: {error.detail or error.problem}") from error
    if not protection().has_seccomp:
        raise JailError(
            "the host would refuse every crawler: this machine has no seccomp; see `sterna doctor`"
        )
    began = clock.now()
    output = _Output(visit, level=min(order.level, config.limits.level), clock=clock, write=write)
    redirect_rules(output.written.append)
    async with aclosing(Workshop(config, clock)) as workshop, workshop.use() as runtime:
        await runtime.carry_out(
            visit,
            deliver=output.take,
            stop=stop,
            through=lambda fetcher: ShieldedFetcher(fetcher, lambda: terms.closed),
        )
    return output.sum(clock.now() - began)


class _Output:
    """Takes parcels in place of the network."""

    def __init__(self, visit: Visit, *, level: int, clock: Clock, write: Write) -> None:
        self._visit = visit
        self._clock = clock
        self._write = write
        self._marks = marks_of(visit.known)
        self._unpacker = Unpacker(visit, self._marks)
        self._stream = StreamWriter(secrets.token_bytes(32), level=level)
        # Changed by take(), of which one runs at a time.
        self._sums = Counter[str](sent_bytes=len(self._stream.begin()))  # fields of DryRun
        self._usage = Usage()
        self._lines = Counter[str]()
        # Lines that rules wrote since the last parcel, which would go to home too.
        self.written: deque[str] = deque(maxlen=MAX_LINES)
        self._ended: Ended | None = None

    async def take(self, parcel: Parcel) -> None:
        packed = await asyncio.to_thread(self._pack, parcel)
        while self.written:
            text = self.written.popleft()
            self._sums["sent_bytes"] += len(self._stream.line(text))
            self._write_one({"kind": "line", "text": text})
        page_bytes = sum(page.size for page in parcel.pages)
        self._sums.update(plain_bytes=len(packed), page_bytes=page_bytes, parcels=1)
        self._ended = parcel.ended
        self._usage = self._usage.plus(parcel.usage)
        for line in lines_of(self._unpacker.unpack(packed, now=self._clock.now())):
            self._write_one(line)

    def sum(self, seconds: float) -> DryRun:
        assert self._ended
        return DryRun(
            crawler=self._visit.crawler.name,
            site=self._visit.site,
            ended=self._ended,
            pages=self._usage.pages,
            kept=self._usage.kept,
            requests=self._usage.requests,
            read_bytes=self._usage.bytes_received,
            lines=dict(sorted(self._lines.items())),
            cpu_seconds=round(self._usage.cpu_seconds, 3),
            seconds=round(seconds, 3),
            **self._sums,
        )

    def _pack(self, parcel: Parcel) -> bytes:
        packed = pack_parcel(parcel, self._marks)
        self._sums["sent_bytes"] += len(self._stream.parcel(packed))
        return packed

    def _write_one(self, line: dict[str, object]) -> None:
        self._lines[str(line["kind"])] += 1
        self._write(line)


def lines_of(parcel: Parcel) -> Iterator[dict[str, object]]:
    """The content of a parcel as lines of several kinds, without empty and default fields."""
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
    yield {"kind": "usage", "parcel": parcel.number, **_non_default(parcel.usage)}
    if parcel.ended:
        yield {"kind": "ended", "why": parcel.ended.value}


def _page(page: Page) -> dict[str, object]:
    fields = _non_default(page)
    if page.links:
        fields["links"] = [_non_default(link) for link in page.links]
    if page.raw:
        fields["raw"] = {name: _plain(value) for name, value in msgspec.structs.asdict(page.raw).items()}
    return {"url": page.url, "status": page.status, **fields}


def _targets(kind: str, targets: Iterable[Target]) -> Iterator[dict[str, object]]:
    return ({"kind": kind, "url": target.url, **_non_default(target)} for target in targets)


def _non_default(record: msgspec.Struct) -> dict[str, object]:
    """The fields of a record that differ from their defaults."""
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
