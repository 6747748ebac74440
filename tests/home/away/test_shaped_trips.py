"""Visits that are shaped after the greeting: what is ordered, what is kept of it, and how it is judged."""

from typing import Any

import msgspec
import pytest
import zstandard
from tests.home.away import lying
from tests.home.away.lying import SITE, LyingHost, parcels
from tests.home.away.outings import Outing
from tests.home.away.visits import OFFER, parcel, target, visit

from sterna.errors import Refused
from sterna.home.away import events as ev
from sterna.home.away.luggage import pack, unpack
from sterna.home.away.trip import Departure, Trip
from sterna.model import Budget, Ended, Parcel, Target, Visit
from sterna.wire.discovery import encode_offer
from sterna.wire.handshake import Session
from sterna.wire.orders import Resume, Send

WIDE = lying.visit(starts=(Target(f"{SITE}/a/"), Target(f"{SITE}/b/")))


def hellos(outing: Outing) -> int:
    return sum(call.op == "hello" for call in outing.host.calls)


async def narrow(whole: Visit, session: Session) -> Visit:
    """The first of its starts alone, under what was granted."""
    budget = Budget(pages=7, seconds=session.grants.seconds)
    return msgspec.structs.replace(whole, starts=whole.starts[:1], budget=budget, within=("/a/",))


# -- the order -------------------------------------------------------------------------------------------


async def test_what_is_ordered_is_what_was_made_of_the_visit_after_the_greeting() -> None:
    outing = Outing(LyingHost(parcels(1)), WIDE)
    trip = await outing.go(shape=narrow)
    (order,) = outing.host.orders
    assert isinstance(order, Send)
    assert (order.starts, order.within, order.budget.pages) == (WIDE.starts[:1], ("/a/",), 7)
    assert (trip.is_proven, hellos(outing)) == (True, 1)


async def test_visit_that_cannot_be_shaped_for_the_host_is_never_ordered() -> None:
    async def refuse(whole: Visit, session: Session) -> Visit:
        raise Refused("no-jail", "rules stay at home")

    outing = Outing(LyingHost(parcels(1)), WIDE)
    with pytest.raises(Refused, match="no-jail"):
        await outing.go(shape=refuse)
    assert outing.host.orders == []


async def test_ticket_that_grew_old_meanwhile_is_not_used() -> None:
    outing = Outing(LyingHost(parcels(1)), WIDE)

    async def slowly(whole: Visit, session: Session) -> Visit:
        outing.clock.time += session.seconds - 1
        return whole

    trip = await outing.go(shape=slowly)
    assert (trip.is_proven, hellos(outing), len(outing.host.orders)) == (True, 2, 1)


async def test_order_that_never_arrived_is_shaped_anew() -> None:
    seen: list[Visit] = []

    async def noting(whole: Visit, session: Session) -> Visit:
        seen.append(whole)
        return await narrow(whole, session)

    outing = Outing(
        LyingHost(parcels(1), refusals=[Refused("ticket-spent"), Refused("gone", "no such visit")]), WIDE
    )
    trip = await outing.go(shape=noting)
    assert trip.is_proven
    assert [type(order) for order in outing.host.orders] == [Send, Resume, Send]
    assert seen == [WIDE, WIDE]


async def test_visit_of_an_earlier_run_is_not_shaped_again() -> None:
    async def never(whole: Visit, session: Session) -> Visit:
        raise AssertionError

    outing = Outing(LyingHost(parcels(3)), WIDE)
    await outing.go(resume_from=2, shape=never)
    assert outing.delivered.numbers == [2, 3]


async def test_pages_beyond_the_grant_are_refused() -> None:
    """The budget that counts is the one that was granted."""
    many = [lying.parcel(1, *(lying.page(f"/a/{n}") for n in range(300)), ended=Ended.FINISHED)]

    async def little(whole: Visit, session: Session) -> Visit:
        return msgspec.structs.replace(whole, budget=Budget(pages=10, urls=10))

    await Outing(LyingHost(many), WIDE).go()
    assert "more pages than the 10 of the budget" in await Outing(LyingHost(many), WIDE).gone(shape=little)


# -- the luggage -----------------------------------------------------------------------------------------


def test_luggage_keeps_what_was_granted_and_what_the_crawler_has_of_its_own() -> None:
    sent = visit(target("/a/"), budget=Budget(pages=50), within=("/a/",))
    packed = pack(sent, OFFER, Budget(pages=2_000))
    assert unpack(packed) == (sent, OFFER, Budget(pages=2_000))


def test_luggage_of_an_earlier_version_is_read() -> None:
    fields: list[Any] = list(msgspec.structs.astuple(visit(target("/"))))
    data = msgspec.msgpack.encode([fields[:-1], encode_offer(OFFER)])
    packed = zstandard.ZstdCompressor().compress(data)
    assert unpack(packed) == (visit(target("/")), OFFER, None)


# -- the end ---------------------------------------------------------------------------------------------


def came_home(*, sent: Visit, own: Visit, last: Parcel) -> tuple[Parcel, str]:
    """The last parcel as it is committed, and what is wrong with its host."""
    trip = Trip(Departure(visit=sent, own=own.budget, is_live_only=False), now=0.0)
    events: list[ev.Event] = [
        ev.Moment.BEGUN,
        ev.Opened(),
        ev.Greeted(seconds=0.0, ticket_seconds=60.0, level=9),
        ev.Ready(sent),
        ev.Moment.ACCEPTED,
    ]
    for event in events:
        trip.on(event, now=0.0)
    *blames, commit = trip.on(ev.Came(last, 100), now=0.0)
    assert isinstance(commit, ev.Commit)
    (fault,) = [each.reason for each in blames if isinstance(each, ev.Fault)] or [""]
    return commit.parcel, fault


@pytest.mark.parametrize(
    ("own", "granted", "ended", "counts_as", "fault"),
    [
        (Budget(), Budget(requests=5), Ended.REQUESTS, Ended.BUDGET, ""),
        (Budget(requests=5), Budget(requests=5), Ended.REQUESTS, Ended.REQUESTS, ""),
        (
            Budget(),
            Budget(facts=5),
            Ended.FACTS,
            Ended.BUDGET,
            "its host grants too little for this crawler: facts",
        ),
        (Budget(facts=5), Budget(facts=5), Ended.FACTS, Ended.FACTS, ""),
        (Budget(), Budget(cpu_seconds=5.0), Ended.CRASH, Ended.CRASH, ""),
    ],
)
def test_only_the_crawlers_own_limits_end_it_at_a_site(
    own: Budget, granted: Budget, ended: Ended, counts_as: Ended, fault: str
) -> None:
    whole = visit(target("/"), budget=own)
    sent = msgspec.structs.replace(whole, budget=granted)
    last, said = came_home(sent=sent, own=whole, last=parcel(whole, 1, "/", ended=ended))
    assert (last.ended, said) == (counts_as, fault)


def test_start_that_was_not_sent_is_not_missed() -> None:
    whole = visit(target("/a/"), target("/b/"))
    sent = msgspec.structs.replace(whole, starts=whole.starts[:1], within=("/a/",))
    last, fault = came_home(sent=sent, own=whole, last=parcel(whole, 1, "/a/", ended=Ended.FINISHED))
    assert (last.checkpoint.again, fault) == ((), "")
