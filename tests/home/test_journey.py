"""A crawler that visits sites one after the other takes its facts along."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import making

from sterna.home.aftermath import Journey
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Ended, Parcel, State, Target

A, B, C = "https://a.test", "https://b.test", "https://c.test"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger.seed([Target(f"{site}/") for site in (A, B, C)], now=1.0)
    yield ledger
    ledger.close()


def last_parcel(site: str, ended: Ended) -> Parcel:
    return making.parcel(site=site, ended=ended)


def due(ledger: SqliteLedger, journey: Journey) -> list[str]:
    visits = [secrets.token_hex(4) for _ in range(3)]
    leases = ledger.lease(visits, now=2.0, pages=10, max_depth=9, may_visit=journey.may_visit)
    return [lease.site for lease in leases]


def test_only_the_first_site_is_visited_at_first(ledger: SqliteLedger) -> None:
    assert due(ledger, Journey((A, B), ledger)) == [A, C]  # C is not on the way, and does as it likes


def test_facts_go_on_to_the_next_site_when_one_is_over(ledger: SqliteLedger) -> None:
    journey = Journey((A, B), ledger)
    due(ledger, journey)
    ledger.set_state(A, State(((1, b"fact"),), b"memory"))

    journey.note(last_parcel(A, Ended.FINISHED))
    journey.move_on(now=2.0)

    assert due(ledger, journey) == [B]
    assert ledger.state(B) == State(((1, b"fact"),), b"memory")


@pytest.mark.parametrize("ended", [Ended.BUDGET, Ended.STOPPED])
def test_crawler_stays_where_it_is_not_done(ledger: SqliteLedger, ended: Ended) -> None:
    journey = Journey((A, B), ledger)

    journey.note(last_parcel(A, ended))
    journey.move_on(now=2.0)

    assert not journey.may_visit(B)


@pytest.mark.parametrize("ended", [Ended.FAILING, Ended.DISQUALIFIED, Ended.CPU_SECONDS])
def test_site_that_fails_does_not_hold_the_journey_up(ledger: SqliteLedger, ended: Ended) -> None:
    journey = Journey((A, B), ledger)

    journey.note(last_parcel(A, ended))
    journey.move_on(now=2.0)

    assert journey.may_visit(B)


def test_journey_goes_on_where_an_earlier_run_left_it(ledger: SqliteLedger) -> None:
    journey = Journey((A, B), ledger)
    journey.note(last_parcel(A, Ended.FINISHED))
    journey.move_on(now=2.0)

    assert Journey((A, B), ledger).may_visit(B)
    assert not Journey((A, B), ledger).may_visit(A)
