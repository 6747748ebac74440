"""Parcels as they cross the network: in columns, without what home knows already or computes itself.

An unchanged page is only a place in the order of the validators that home sent; home makes its record again.
Holds and the rules of robots.txt stay at the host. Apart from unchanged pages, home unpacks from
`pack_parcel(parcel)` what `as_sent(parcel)` is.
"""

import math
from collections.abc import Iterable
from itertools import chain, repeat
from struct import pack, unpack
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from sterna.errors import WireError
from sterna.model import (
    Checkpoint,
    Ended,
    Page,
    Parcel,
    Record,
    Robots,
    RobotsState,
    StateChange,
    Target,
    Usage,
    Visit,
)
from sterna.web.urls import fingerprint, site_of
from sterna.web.weight import (
    DONE_BYTES,
    MAX_FACT_BYTES,
    ROW_BYTES,
    weight_of_facts,
    weight_of_rows,
    weight_of_url,
)
from sterna.wire import records
from sterna.wire.columns import pack_places, unpack_places
from sterna.wire.fitting import Judged, Room, fitting, is_light
from sterna.wire.known import Marks
from sterna.wire.problems import array_length, malformed, size_of
from sterna.wire.weight import MAX_WEIGHT_BYTES, weight_of_state

MAX_PARCEL_BYTES = 26 * 1024 * 1024
CLOCK_SLACK_SECONDS = 120.0  # by which the clocks of home and host may differ
MAX_ROWS = 1_000_000  # facts that rules send home, or a crawler holds, in one parcel
MAX_ROW_BYTES = 1024 * 1024  # of a fact that rules send home
MAX_USAGE_BYTES = 256 * 1024
MAX_COUNT = 2**53
_MAX_CPU_SECONDS = 2**32  # home counts them in microseconds
MAX_ERRORS = 1000  # kinds of them, in all parcels of a visit
_MAX_FACT_NUMBER = 2**53
_MAX_REASON = 200  # characters, of a robots.txt that failed
_MAX_WORD_BYTES = 2_000

_encode = msgspec.msgpack.Encoder().encode
_EMPTY: Any = msgspec.Raw(b"\x90")
Part = TypeVar("Part")  # a record where a parcel is made, the bytes of one where it is read


class _Packed(Record, Generic[Part], frozen=True, kw_only=True):
    """A parcel as it travels; parts that may be large are decoded one by one, after they were weighed."""

    visit: str
    part: str
    epoch: int
    number: int
    pages: Part = _EMPTY  # PageColumns
    unchanged: bytes = b""  # places in the order of the marks
    unchanged_at: int = 0  # when the last of them was fetched, in milliseconds
    found: Part = _EMPTY  # TargetColumns, as the other two
    done: bytes = b""  # fingerprints
    again: Part = _EMPTY
    outlinks: Part = _EMPTY
    state: Part = _EMPTY  # StateChange
    rows: Part = _EMPTY
    usage: Part = _EMPTY  # Usage
    ended: Ended | None = None
    row_counts: bytes = b""  # how many of the rows each of `pages` has, in 32 bits
    robots: Part = _EMPTY  # _Word, if robots.txt was asked for


class _Word(Record, frozen=True):
    """What the host says became of asking for its robots.txt; times in milliseconds."""

    state: RobotsState
    tried_at: int
    failures: int
    retry_at: int
    reason: str


class _StateParts(Record, frozen=True):
    added: msgspec.Raw = _EMPTY
    removed: msgspec.Raw = _EMPTY


_DECODER = msgspec.msgpack.Decoder(_Packed[msgspec.Raw])
_STATE_PARTS = msgspec.msgpack.Decoder(_StateParts)
_STATE = msgspec.msgpack.Decoder(StateChange)
_ROWS = msgspec.msgpack.Decoder(tuple[bytes, ...])
_USAGE = msgspec.msgpack.Decoder(Usage)
_WORD = msgspec.msgpack.Decoder(_Word)


# --- at the host


def as_sent(parcel: Parcel, known_marks: Marks) -> Parcel:
    """The parcel as home will have it: times in whole milliseconds, unchanged pages last, by their marks."""
    changed: list[Judged] = []
    unchanged: dict[int, Page] = {}
    first = len(parcel.rows) - sum(parcel.row_counts)  # rows that belong to no page
    at = first
    for page, count in zip(parcel.pages, parcel.row_counts or repeat(0), strict=False):
        place = known_marks.get(page.fingerprint) if page.is_unchanged else None
        if place is None:
            changed.append((records.as_travelling(page), parcel.rows[at : at + count]))
        else:
            unchanged[place] = page
        at += count
    checkpoint = parcel.checkpoint
    bare = replace(
        parcel,
        pages=tuple(unchanged[place] for place in sorted(unchanged)),
        rows=parcel.rows[:first],
        row_counts=(),
        checkpoint=replace(
            checkpoint,
            found=tuple(target for target in checkpoint.found if _is_news(target, known_marks)),
            again=tuple(
                replace(target, not_before=records.milliseconds(target.not_before) / 1000)
                for target in checkpoint.again
            ),
        ),
        holds=(),
        robots=_as_told(parcel.robots) if parcel.robots else None,
        delay_seconds=0.0,
    )
    besides = _weight_besides_pages(bare)  # more than its bytes
    if is_light(changed, Room(MAX_PARCEL_BYTES - besides, MAX_WEIGHT_BYTES - besides)):
        return _with_pages(bare, changed)
    room = Room(MAX_PARCEL_BYTES - len(_packed(bare, known_marks)), MAX_WEIGHT_BYTES - besides)
    some = fitting(changed, room, is_taken=lambda some: _is_taken(_with_pages(bare, some), known_marks))
    return _with_pages(bare, some)


def _with_pages(bare: Parcel, judged: list[Judged]) -> Parcel:
    """The parcel with these pages and their rows before the unchanged ones."""
    counts = [len(rows) for _, rows in judged]
    return replace(
        bare,
        pages=(*(page for page, _ in judged), *bare.pages),
        rows=(*bare.rows, *chain.from_iterable(rows for _, rows in judged)),
        row_counts=(*counts, *repeat(0, len(bare.pages))) if any(counts) else (),
    )


def _is_taken(sent: Parcel, known_marks: Marks) -> bool:
    """True if every home takes this parcel."""
    try:
        _check(_packed(sent, known_marks), sent)
    except WireError:
        return False
    return True


def pack_parcel(parcel: Parcel, known_marks: Marks) -> bytes:
    """The parcel for the stream; WireError("too-large") if its facts are too much for any parcel."""
    sent = as_sent(parcel, known_marks)
    packed = _packed(sent, known_marks)
    _check(packed, sent)
    return packed


def _packed(parcel: Parcel, known_marks: Marks) -> bytes:
    unchanged = [page for page in parcel.pages if page.is_unchanged]
    checkpoint = parcel.checkpoint
    return _encode(
        _Packed[object](
            visit=parcel.visit,
            part=parcel.part,
            epoch=parcel.epoch,
            number=parcel.number,
            pages=records.pack_pages([page for page in parcel.pages if not page.is_unchanged], parcel.site),
            unchanged=pack_places(known_marks[page.fingerprint] for page in unchanged),
            unchanged_at=max((records.milliseconds(page.fetched) for page in unchanged), default=0),
            found=records.pack_targets(checkpoint.found, parcel.site),
            done=pack(f">{len(checkpoint.done)}q", *checkpoint.done),
            again=records.pack_targets(checkpoint.again, parcel.site),
            outlinks=records.pack_targets(parcel.outlinks, parcel.site),
            state=parcel.state,
            rows=parcel.rows,
            usage=parcel.usage,
            ended=parcel.ended,
            row_counts=_packed_counts(parcel.row_counts[: len(parcel.pages) - len(unchanged)]),
            robots=_word_of(parcel.robots) if parcel.robots else _EMPTY,
        )
    )


def _check(packed: bytes, parcel: Parcel) -> None:
    """WireError if a home would refuse these bytes of a parcel, as home finds it."""
    if len(packed) > MAX_PARCEL_BYTES:
        raise WireError(
            "too-large", f"parcel {parcel.number} has {len(packed):,} bytes; {MAX_PARCEL_BYTES:,} are allowed"
        )
    _weigh(_DECODER.decode(packed), packed, parcel.site)
    _check_facts(parcel.rows, parcel.state)


def _as_told(robots: Robots) -> Robots:
    return replace(
        robots,
        tried_at=records.milliseconds(robots.tried_at) / 1000,
        retry_at=records.milliseconds(robots.retry_at) / 1000,
        rules=b"",
        reason="".join(each for each in robots.reason[:_MAX_REASON] if each.isprintable()),
    )


def _word_of(told: Robots) -> _Word:
    tried_at, retry_at = records.milliseconds(told.tried_at), records.milliseconds(told.retry_at)
    return _Word(told.state, tried_at, told.failures, retry_at, told.reason)


def _told(data: msgspec.Raw) -> Robots | None:
    """What the host says of its robots.txt; WireError if it makes no sense."""
    if data == _EMPTY:
        return None
    if len(data) > _MAX_WORD_BYTES:
        raise WireError("malformed", f"{len(data):,} bytes on a robots.txt")
    word = _WORD.decode(data)
    numbers = (word.tried_at, word.failures, word.retry_at)
    if not all(0 <= each <= MAX_COUNT for each in numbers) or not word.reason.isprintable():
        raise WireError("malformed", "the state of a robots.txt is out of range")
    return Robots(word.state, word.tried_at / 1000, word.failures, word.retry_at / 1000, b"", word.reason)


def _packed_counts(counts: tuple[int, ...]) -> bytes:
    return pack(f">{len(counts)}I", *counts)


def _is_news(target: Target, marks: Marks) -> bool:
    """False for a page whose validator home sent, unless rules raised its priority or it is a sitemap."""
    is_marked = bool(target.priority) or target.kind == "sitemap"
    return not marks or is_marked or fingerprint(target.url) not in marks


def _weight_besides_pages(bare: Parcel) -> int:
    """What a parcel without pages, unless they are unchanged, takes in memory at home, with its bytes."""
    checkpoint, state = bare.checkpoint, bare.state
    urls = sum(map(weight_of_url, chain(checkpoint.found, checkpoint.again, bare.outlinks)))
    facts = weight_of_facts(len(state.added), len(state.removed)) + weight_of_rows(bare.rows)
    told = sum(len(fact) for _, fact in state.added) + len(state.memory or b"")
    done = 2 * DONE_BYTES * (len(checkpoint.done) + len(bare.pages))
    return urls + facts + told + done + MAX_USAGE_BYTES


# --- at home


class Unpacker:
    """Unpacks and checks the parcels of one visit, as home leased it."""

    def __init__(self, visit: Visit, known_marks: Marks, *, began: float = 0.0) -> None:
        self._visit = visit
        self._marks = tuple(known_marks)
        self._earliest = began - CLOCK_SLACK_SECONDS
        self._pages = 0  # in all parcels so far
        # URLs that can be left without a page: each was a start URL or a found one.
        self._left_out = len(visit.starts) + visit.budget.urls + records.SLACK_TARGETS
        self._urls = 2 * visit.budget.urls + records.SLACK_TARGETS  # to be found, of this site and of others
        # From these home makes the records of unchanged pages.
        starts = visit.starts if known_marks else ()
        self._starts = {fingerprint(target.url): target for target in starts}
        self._validators = {each.fingerprint: each for each in visit.known.validators}

    def unpack(self, data: bytes, *, now: float) -> Parcel:
        """The parcel; WireError if it is invalid. The caller checks that its number is the next."""
        if len(data) > MAX_PARCEL_BYTES:
            raise WireError("too-large", f"a parcel of {len(data):,} bytes")
        visit = self._visit
        with malformed("the parcel"):
            packed = _DECODER.decode(data)
            urls = _weigh(packed, data, visit.site)
            self._left_out -= len(packed.done) // 8
            if self._left_out < 0:
                raise WireError("too-large", "more URLs are done without a page than the budget has URLs")
            self._urls -= urls
            if self._urls < 0:
                raise WireError("too-large", "more URLs are found than the visit's budget allows")
            state, rows = _STATE.decode(packed.state), _ROWS.decode(packed.rows)
            usage = _USAGE.decode(packed.usage)
            robots = _told(packed.robots)
        if (packed.visit, packed.part, packed.epoch) != (visit.id, visit.part, visit.epoch):
            raise WireError("malformed", f"a parcel of another visit than {visit.id}, epoch {visit.epoch}")
        if not 1 <= packed.number <= MAX_COUNT:
            raise WireError("malformed", f"a parcel with the number {packed.number}")
        _check_facts(rows, state)
        check_usage(usage)
        latest = now + CLOCK_SLACK_SECONDS
        changed = records.unpack_pages(packed.pages, visit.site, earliest=self._earliest, latest=latest)
        self._check_sites(page.url for page in changed)
        pages = (*changed, *self._unchanged(packed, latest))
        self._count(pages, usage)
        return Parcel(
            visit=visit.id,
            site=visit.site,
            part=visit.part,
            epoch=visit.epoch,
            number=packed.number,
            pages=pages,
            outlinks=self._targets(packed.outlinks, now, is_home=False),
            checkpoint=Checkpoint(
                found=self._targets(packed.found, now),
                done=unpack(f">{len(packed.done) // 8}q", packed.done),
                again=self._targets(packed.again, now),
            ),
            state=state,
            rows=rows,
            row_counts=_row_counts(packed, len(changed), len(pages), len(rows)),
            robots=robots,
            usage=usage,
            ended=packed.ended,
        )

    def _unchanged(self, packed: _Packed[msgspec.Raw], latest: float) -> list[Page]:
        places = unpack_places(packed.unchanged, len(self._marks))
        at = packed.unchanged_at / 1000
        if places and not self._earliest <= at <= latest:
            raise WireError("malformed", "pages were fetched before the visit began, or in the future")
        return [self._page(self._marks[place], at) for place in places]

    def _page(self, mark: int, fetched: float) -> Page:
        start, validator = self._starts.get(mark), self._validators.get(mark)
        if start is None or validator is None:
            raise WireError("malformed", "an unchanged page was not asked for")
        return Page(
            url=start.url,
            fingerprint=mark,
            depth=start.depth,
            fetched=fetched,
            status=304,
            is_unchanged=True,
            digest=validator.digest,
            modified=validator.modified,
            etag=validator.etag,
            referrer=start.referrer,
            likeness=validator.likeness,
        )

    def _count(self, pages: tuple[Page, ...], usage: Usage) -> None:
        if len({page.fingerprint for page in pages}) != len(pages):
            raise WireError("malformed", "the same page twice in a parcel")
        good = sum(not page.error and (200 <= page.status < 300 or page.status == 304) for page in pages)
        self._pages += max(good, usage.pages)
        if self._pages > self._visit.budget.pages:
            raise WireError("malformed", f"more pages than the {self._visit.budget.pages:,} of the budget")

    def _targets(self, packed: msgspec.Raw, now: float, *, is_home: bool = True) -> tuple[Target, ...]:
        targets = records.unpack_targets(packed, self._visit.site, now=now)
        self._check_sites((target.url for target in targets), is_home=is_home)
        return targets

    def _check_sites(self, urls: Iterable[str], *, is_home: bool = True) -> None:
        """WireError if a URL is of another site or, where `is_home` is False, of this one."""
        for url in urls:
            if (site_of(url) == self._visit.site) is not is_home:
                place = "another site" if is_home else "this site"
                raise WireError("malformed", f"{url[:200]!r} is a URL of {place}")


def _weigh(packed: _Packed[msgspec.Raw], data: bytes, site: str) -> int:
    """How many URLs a parcel has; WireError if it would take too much memory: a host can send anything."""
    pages = records.PAGES.weigh(packed.pages, site)
    urls = [records.TARGETS.weigh(each, site) for each in (packed.found, packed.again, packed.outlinks)]
    if sum(each.count for each in urls) > records.MAX_TARGETS:
        raise WireError("malformed", f"more than {records.MAX_TARGETS:,} URLs in a parcel")
    if len(packed.done) % 8 or len(packed.done) > 8 * records.MAX_TARGETS:
        raise WireError("malformed", f"{len(packed.done):,} bytes of URLs that are done")
    state = _STATE_PARTS.decode(packed.state)
    if max(map(array_length, (packed.rows, state.added, state.removed))) > MAX_ROWS:
        raise WireError("malformed", f"more than {MAX_ROWS:,} facts in a parcel")
    if size_of(packed.usage) > MAX_USAGE_BYTES:
        raise WireError("malformed", f"more than {MAX_USAGE_BYTES:,} bytes of counts in a parcel")
    facts = weight_of_state(state.added, state.removed) + ROW_BYTES * array_length(packed.rows)
    objects = sum(each.size_bytes for each in (pages, *urls))
    weight = len(data) + objects + facts + DONE_BYTES * len(packed.done) // 8
    if weight > MAX_WEIGHT_BYTES:
        detail = f"takes {weight:,} bytes of memory; {MAX_WEIGHT_BYTES:,} are allowed"
        raise WireError("too-large", f"parcel {packed.number} {detail}")
    return urls[0].count + urls[2].count


def _row_counts(packed: _Packed[msgspec.Raw], changed: int, pages: int, rows: int) -> tuple[int, ...]:
    """The number of rows of each page; none where a host does not say, as those before 0.3."""
    if not packed.row_counts:
        return ()
    if len(packed.row_counts) != 4 * changed:
        raise WireError("malformed", f"{len(packed.row_counts)} bytes of row counts for {changed} pages")
    counts = unpack(f">{changed}I", packed.row_counts)
    if sum(counts) > rows:
        raise WireError("malformed", f"pages with {sum(counts):,} rows, but only {rows:,} rows")
    return (*counts, *repeat(0, pages - changed))


def _check_facts(rows: tuple[bytes, ...], state: StateChange) -> None:
    for facts, most in ((rows, MAX_ROW_BYTES), ((fact for _, fact in state.added), MAX_FACT_BYTES)):
        if max(map(len, facts), default=0) > most:
            raise WireError("malformed", f"a fact of more than {most:,} bytes")
    numbers = chain(state.removed, (number for number, _ in state.added))
    if not all(0 <= number <= _MAX_FACT_NUMBER for number in numbers):
        raise WireError("malformed", f"the number of a fact is out of range (0 to {_MAX_FACT_NUMBER})")


def check_usage(usage: Usage) -> None:
    """WireError if a count is out of range or an error has an invalid name."""
    counts = (usage.requests, usage.bytes_received, usage.pages, usage.unchanged, usage.redirects, usage.kept)
    amounts = (*counts, usage.sent_bytes, usage.cpu_seconds, *usage.errors.values())
    is_true = all(math.isfinite(amount) and 0 <= amount <= MAX_COUNT for amount in amounts)
    if not is_true or usage.cpu_seconds > _MAX_CPU_SECONDS:
        raise WireError("malformed", "a count is negative or too large")
    if len(usage.errors) > MAX_ERRORS:
        raise WireError("malformed", f"{len(usage.errors)} kinds of errors")
    for kind in usage.errors:
        records.check_error(kind)
