"""Carries a crawler on for so many pages, in a process of its own, and saves it.

python -m tests.runtime.continuing FILE SITE SOURCE PAGES, where SOURCE is "http" or a document root.
"""

import asyncio
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace
from tests import making

from sterna.crawler.pack import PackedCrawler, SavedProgress, encode, read
from sterna.model import Budget, Ended, Etiquette, Known, Parcel, State, StateChange, Target, Visit
from sterna.runtime.access import Kit
from sterna.runtime.engine.client import Engines
from sterna.runtime.readers import Readers
from sterna.runtime.runtime import Runtime
from sterna.web.bodies import DOCUMENT_ROOM_BYTES, BodyRoom
from sterna.web.clock import SystemClock
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.dns import DnsResolver
from sterna.web.http import Fetcher
from sterna.web.politeness import NO_LIMITS, Gate
from sterna.web.root_fetcher import RootFetcher
from sterna.web.urls import fingerprint


def visit_of(packed: PackedCrawler, site: str, pages: int) -> Visit:
    visit = making.visit(
        site=site,
        crawler=packed.crawler,
        etiquette=Etiquette(delay_seconds=0.0, response_factor=0.0, connections=1, obey_robots=False),
        budget=Budget(pages=pages),
        may_be_private=True,
    )
    return visit if packed.progress == SavedProgress() else continued(visit, packed.progress)


def progress_of(visit: Visit, parcels: Iterable[Parcel]) -> SavedProgress:
    """The crawler's progress after these parcels: all of the visit, in order."""
    seen = array("q")
    seen.frombytes(visit.known.fingerprints)
    marks = set(seen)
    waiting = {fingerprint(target.url): target for target in visit.starts}
    state = visit.state
    for parcel in parcels:
        state = changed(state, parcel.state)
        _line_up(waiting, parcel.checkpoint.found)
        for mark in (*parcel.checkpoint.done, *(page.fingerprint for page in parcel.pages)):
            waiting.pop(mark, None)
            marks.add(mark)
        waiting.update((fingerprint(target.url), target) for target in parcel.checkpoint.again)
    marks.update(waiting)
    return SavedProgress(
        state=state, frontier=tuple(waiting.values()), seen=array("q", sorted(marks)).tobytes()
    )


def continued(visit: Visit, progress: SavedProgress) -> Visit:
    """The visit as it continues from there; the caller renews its id, budget and epoch."""
    seen = array("q")
    seen.frombytes(progress.seen)
    done = set(seen).difference(fingerprint(target.url) for target in progress.frontier)
    known = Known(array("q", sorted(done)).tobytes(), visit.known.validators)
    return replace(visit, starts=progress.frontier, known=known, state=progress.state)


def changed(state: State, change: StateChange) -> State:
    """The state after a change; a modified fact keeps its number."""
    facts = dict(state.facts)
    for number in change.removed:
        facts.pop(number, None)
    facts.update(change.added)
    return State(tuple(sorted(facts.items())), state.memory if change.memory is None else change.memory)


def _line_up(waiting: dict[int, Target], found: Iterable[Target]) -> None:
    """Adds found targets; one found again, with a higher priority, moves to the end."""
    for target in found:
        mark = fingerprint(target.url)
        waiting.pop(mark, None)
        waiting[mark] = target


async def carry_on(visit: Visit, fetcher: Fetcher) -> list[Parcel]:
    parcels: list[Parcel] = []

    async def deliver(parcel: Parcel) -> None:
        parcels.append(parcel)

    clock = SystemClock()
    async with Readers(1) as readers, Engines() as engines:
        kit = Kit(
            clock=clock,
            resolver=DnsResolver(clock),
            fetcher=fetcher,
            gate=Gate(NO_LIMITS),
            slots=asyncio.Semaphore(4),
            bodies=BodyRoom(),
            documents=BodyRoom(DOCUMENT_ROOM_BYTES),
            readers=readers,
            engines=engines,
        )
        await Runtime(kit).carry_out(visit, deliver=deliver, stop=asyncio.Event())
    return parcels


async def main(path: Path, site: str, source: str, pages: int) -> None:
    packed = read(path)
    visit = visit_of(packed, site, pages)
    fetcher = CurlFetcher(CurlConfig(connections=4)) if source == "http" else RootFetcher(Path(source))
    try:
        parcels = await carry_on(visit, fetcher)
    finally:
        if isinstance(fetcher, CurlFetcher):
            await fetcher.close()
    assert parcels[-1].ended in (Ended.FINISHED, Ended.BUDGET), parcels[-1].ended
    path.write_bytes(encode(replace(packed, progress=progress_of(visit, parcels))))  # noqa: ASYNC240 - at the end
    sys.stdout.write(parcels[-1].ended)


if __name__ == "__main__":
    file, site, source, pages = sys.argv[1:]
    asyncio.run(main(Path(file), site, source, int(pages)))
