"""The trip as a state machine: a list of events replays it, without a clock, a network or a ledger."""

from collections.abc import Iterable

import pytest
from tests.home.away.visits import parcel, target, visit

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused
from sterna.home.away import events as ev
from sterna.home.away.patience import Patience
from sterna.home.away.trip import Departure, Stage, Trip
from sterna.home.ledger.records import Out
from sterna.model import Ended

VISIT = visit(target("/"), target("/b"))
PATIENCE = Patience(tries=3, pause_seconds=1.0)
GREETED = ev.Greeted(seconds=0.0, ticket_seconds=60.0, level=9)
TO_THE_STREAM: tuple[ev.Event, ...] = (GREETED, ev.Ready(VISIT), ev.Moment.ACCEPTED)
FIRST = ev.Came(parcel(VISIT, 1, "/"), 100)
LAST = ev.Came(parcel(VISIT, 2, "/b", ended=Ended.FINISHED), 100)
CUT = ev.Failed(LineBroken("cut"))


def begun(opened: ev.Opened | None = None, **fields: object) -> Trip:
    departure = Departure(visit=VISIT, patience=PATIENCE, **fields)  # type: ignore[arg-type]
    trip = Trip(departure, now=0.0)
    replay(trip, [ev.Moment.BEGUN, opened or ev.Opened()])
    return trip


def replay(trip: Trip, events: Iterable[ev.Event], *, now: float = 1.0) -> list[ev.Action]:
    """The actions that follow the last of the events."""
    actions: tuple[ev.Action, ...] = ()
    for event in events:
        actions = trip.on(event, now=now)
    return list(actions)


def test_crawler_is_written_down_before_anything_is_asked() -> None:
    trip = Trip(Departure(visit=VISIT), now=0.0)
    assert trip.on(ev.Moment.BEGUN, now=0.0) == (ev.Step.WRITE_OUT, ev.Step.OPEN)


def test_trip_goes_through_its_stages_to_the_end() -> None:
    trip = begun()
    events = [
        *TO_THE_STREAM,
        FIRST,
        ev.Moment.STORED,
        LAST,
        ev.Moment.STORED,
        ev.StreamOver(True),
        ev.Signed("signed"),
    ]
    stages = []
    for event in events:
        replay(trip, [event])
        stages.append(trip.stage)
    assert list(dict.fromkeys(stages)) == [Stage.GREETED, Stage.ORDERED, Stage.STREAMING]
    assert replay(trip, [ev.Closed(Out.RETURNED)]) == []
    assert (trip.stage, trip.is_over) == (Stage.DONE, True)
    assert (trip.ended, trip.parcels, trip.pages, trip.is_proven) == (Ended.FINISHED, 2, 2, True)
    assert (trip.receipt, trip.faults) == ("signed", [])


def test_parcel_is_acknowledged_only_after_it_is_stored() -> None:
    trip = begun()
    (commit,) = replay(trip, [*TO_THE_STREAM, FIRST])
    assert isinstance(commit, ev.Commit)
    assert replay(trip, [ev.Moment.STORED]) == [ev.Acknowledge(1, 100), ev.Step.READ]


def test_cut_stream_is_resumed_where_it_was_cut() -> None:
    trip = begun()
    assert replay(trip, [*TO_THE_STREAM, FIRST, ev.Moment.STORED, CUT]) == [ev.Sleep(1.0)]
    assert trip.stage is Stage.CUT
    assert replay(trip, [ev.Moment.SLEPT]) == [ev.Greet(is_known=True)]
    assert replay(trip, [GREETED]) == [ev.Order(resume_from=2, level=3)]


def test_tries_without_a_parcel_between_them_have_an_end_and_pauses_grow() -> None:
    trip = begun()
    pauses = [
        replay(trip, [*TO_THE_STREAM, CUT]),
        replay(trip, [ev.Moment.SLEPT, GREETED, ev.Moment.ACCEPTED, CUT]),
    ]
    assert pauses == [[ev.Sleep(1.0)], [ev.Sleep(2.0)]]
    assert replay(trip, [ev.Moment.SLEPT, CUT]) == [ev.Step.DISCARD, ev.Step.LOOK_FOR_KILL]
    assert trip.stage is Stage.LOST


def test_host_that_keeps_no_visits_is_lost_with_the_line() -> None:
    trip = begun(is_live_only=True)
    assert replay(trip, [*TO_THE_STREAM, FIRST, ev.Moment.STORED, CUT]) == [
        ev.Step.DISCARD,
        ev.Step.LOOK_FOR_KILL,
    ]
    blame, close = replay(trip, [ev.Looked(is_killed=False)])
    assert isinstance(blame, ev.Fault)
    assert isinstance(close, ev.Close)
    assert (close.out, close.is_over) == (Out.LOST, True)


def test_refused_crawler_is_still_to_be_sent_and_keeps_its_lease() -> None:
    trip = begun()
    refusal = Refused("busy", "the queue is full", retry_after=30.0)
    discard, blame, close = replay(trip, [ev.Failed(refusal)])
    assert discard == ev.Step.DISCARD
    assert isinstance(blame, ev.Fault)
    assert (blame.problem, blame.seconds) == ("busy", 30.0)
    assert isinstance(close, ev.Close)
    assert not close.is_over
    replay(trip, [ev.Closed(Out.LOST)])
    assert (trip.was_taken, trip.failure) == (False, refusal)


def test_order_that_never_arrived_is_shaped_and_sent_again() -> None:
    trip = begun()
    gone = ev.Failed(Refused("gone"))
    replay(trip, [GREETED, ev.Ready(VISIT), CUT, ev.Moment.SLEPT, GREETED, gone, ev.Moment.SLEPT])
    assert replay(trip, [GREETED]) == [ev.Shape(is_new=True)]
    assert replay(trip, [ev.Ready(VISIT)]) == [ev.Order(resume_from=0, level=3)]


def test_ticket_that_expires_while_the_visit_is_packed_is_renewed() -> None:
    trip = begun()
    replay(trip, [GREETED], now=1.0)
    assert replay(trip, [ev.Ready(VISIT)], now=50.0) == [ev.Greet(is_known=False)]
    assert replay(trip, [GREETED], now=50.0) == [ev.Order(resume_from=0, level=3)]


def test_host_that_makes_no_progress_is_killed_and_lost() -> None:
    trip = begun()
    replay(trip, TO_THE_STREAM, now=1.0)
    kill, *rest = replay(trip, [ev.Said()], now=1e6)
    assert (kill, rest) == (ev.Kill(), [ev.Step.DISCARD, ev.Step.LOOK_FOR_KILL])


@pytest.mark.parametrize("number", [0, 1])
def test_stopped_run_kills_a_visit_that_is_there_and_takes_what_still_comes(number: int) -> None:
    trip = begun()
    came: list[ev.Event] = [FIRST, ev.Moment.STORED]
    replay(trip, [*TO_THE_STREAM, *came[: 2 * number]])
    assert replay(trip, [ev.Stopped()]) == [ev.Kill(is_beside=True), ev.Wait(PATIENCE.stop_seconds)]
    (close,) = replay(trip, [ev.Moment.TIME_UP])
    assert close == ev.Close(out=Out.RETURNED, reason="stopped", promised=0)


def test_visit_stopped_before_it_left_is_over_at_once() -> None:
    trip = begun()
    assert replay(trip, [ev.Stopped()]) == [ev.Close(out=Out.RETURNED, reason="stopped")]


def test_refused_parcel_kills_the_visit() -> None:
    trip = begun()
    kill, discard, close = replay(trip, [*TO_THE_STREAM, FIRST, ev.Failed(ParcelRefused("stale"))])
    assert (kill, discard) == (ev.Kill(), ev.Step.DISCARD)
    assert isinstance(close, ev.Close)
    assert close.out is Out.LOST


# -- hosts that are not believed yet -----------------------------------------------------------------------

HELD = ev.Opened(is_checked=True, is_held=True)


def test_parcels_of_an_unknown_host_are_held_until_it_is_believed() -> None:
    trip = begun(HELD)
    assert replay(trip, [*TO_THE_STREAM, FIRST]) == [ev.Hold(FIRST.parcel, 100)]
    prove, check = replay(trip, [ev.Moment.STORED, LAST, ev.Moment.STORED, ev.StreamOver(True), ev.Signed()])
    assert (prove, check) == (ev.Step.PROVE, ev.Check(VISIT, is_whole=True))
    assert trip.stage is Stage.WAITING
    assert replay(trip, [ev.Judged()]) == [ev.Step.RELEASE]
    (commit,) = replay(trip, [ev.Released(FIRST.parcel, 100)])
    assert isinstance(commit, ev.Commit)
    assert replay(trip, [ev.Moment.STORED]) == [ev.Step.RELEASE]
    replay(trip, [ev.Released(LAST.parcel, 100), ev.Moment.STORED])
    discard, close = replay(trip, [ev.Released()])
    assert (discard, close) == (ev.Step.DISCARD, ev.Close(out=Out.RETURNED, reason="finished", promised=0))


def test_nothing_of_a_lying_host_is_committed() -> None:
    trip = begun(HELD)
    replay(trip, [*TO_THE_STREAM, LAST, ev.Moment.STORED, ev.StreamOver(True), ev.Signed()])
    assert replay(trip, [ev.Judged(HostGone("it lied"))]) == [ev.Step.DISCARD, ev.Step.LOOK_FOR_KILL]


def test_what_came_before_a_host_broke_off_is_checked_and_used() -> None:
    trip = begun(HELD)
    gone = ev.Failed(HostGone("it gave up"))
    (check,) = replay(trip, [*TO_THE_STREAM, FIRST, ev.Moment.STORED, gone])
    assert isinstance(check, ev.Check)
    replay(trip, [ev.Judged(), ev.Released(FIRST.parcel, 100), ev.Moment.STORED])
    assert replay(trip, [ev.Released()]) == [ev.Step.DISCARD, ev.Step.DISCARD, ev.Step.LOOK_FOR_KILL]


def test_restart_goes_on_behind_what_is_in_quarantine() -> None:
    trip = begun(ev.Opened(is_checked=True, is_held=True, last=1, pages=1), resume_from=1)
    assert replay(trip, [GREETED]) == [ev.Shape(is_new=False)]
    assert replay(trip, [ev.Ready(VISIT)]) == [ev.Order(resume_from=2, level=3)]


def test_restart_after_the_proven_end_asks_the_host_nothing() -> None:
    trip = Trip(Departure(visit=VISIT, resume_from=1), now=0.0)
    opened = ev.Opened(is_checked=True, is_held=True, last=2, is_proven=True, pages=2)
    assert replay(trip, [ev.Moment.BEGUN, opened]) == [ev.Check(VISIT, is_whole=True)]
