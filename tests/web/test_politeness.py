"""Holds, delays and rates."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sterna.model import Etiquette, Hold
from sterna.web.politeness import TOTAL, Gate, Limits, Rate, keys_of, next_delay

KEYS = keys_of("https://a.example", "192.0.2.1")
NEIGHBOUR = keys_of("https://b.example", "192.0.2.1")
SIBLING = keys_of("https://www.a.example", "192.0.2.2")
FREE = Limits(address=Rate(), domain=Rate())


def test_fresh_gate_is_open() -> None:
    assert Gate(FREE).ready_at(KEYS) == 0.0


def test_delay_counts_from_the_end_of_the_response() -> None:
    gate = Gate(FREE)
    gate.start(KEYS, 100.0, delay=1.0)
    assert gate.ready_at(KEYS) == 101.0
    gate.finish(KEYS, 103.5, delay=1.0, size_bytes=10)
    assert gate.ready_at(KEYS) == 104.5
    assert gate.ready_at(NEIGHBOUR) == 0.0


def test_hold_is_never_shortened_by_a_later_one() -> None:
    gate = Gate(FREE)
    gate.hold(KEYS.site, 500.0)
    gate.finish(KEYS, 10.0, delay=1.0, size_bytes=0)
    assert gate.ready_at(KEYS) == 500.0


def test_sites_on_one_address_share_its_rate() -> None:
    gate = Gate(Limits(address=Rate(requests=2.0), domain=Rate()))
    gate.start(KEYS, 100.0, delay=0.0)
    assert gate.ready_at(NEIGHBOUR) == 100.5
    assert gate.ready_at(SIBLING) == 0.0


def test_sites_of_one_domain_share_its_rate() -> None:
    gate = Gate(Limits(address=Rate(), domain=Rate(requests=4.0)))
    gate.start(KEYS, 100.0, delay=0.0)
    assert gate.ready_at(SIBLING) == 100.25
    assert gate.ready_at(NEIGHBOUR) == 0.0


def test_bytes_are_a_debt_that_is_paid_by_waiting() -> None:
    gate = Gate(Limits(address=Rate(bytes=1000.0), domain=Rate()))
    gate.finish(KEYS, 100.0, delay=0.0, size_bytes=5000)
    assert gate.ready_at(NEIGHBOUR) == 105.0
    gate.finish(NEIGHBOUR, 101.0, delay=0.0, size_bytes=1000)
    assert gate.ready_at(KEYS) == 106.0


def test_total_rate_gives_out_starts_one_after_the_other() -> None:
    gate = Gate(Limits(address=Rate(), domain=Rate(), total=Rate(requests=10.0)))
    assert [round(gate.reserve(50.0), 3) for _ in range(3)] == [50.0, 50.1, 50.2]
    assert gate.reserve(60.0) == 60.0


def test_total_debt_of_bytes_delays_the_next_start() -> None:
    gate = Gate(Limits(address=Rate(), domain=Rate(), total=Rate(bytes=100.0)))
    gate.finish(KEYS, 10.0, delay=0.0, size_bytes=1000)
    assert gate.reserve(11.0) == 20.0


def test_holds_carry_over_to_another_gate() -> None:
    gate = Gate(Limits(address=Rate(requests=1.0), domain=Rate()))
    gate.start(KEYS, 100.0, delay=30.0)
    holds = gate.holds([KEYS.site, KEYS.address, KEYS.domain, TOTAL], 100.5)
    assert set(holds) == {Hold(KEYS.site, 130.0), Hold(KEYS.address, 101.0)}
    restored = Gate(FREE)
    restored.restore(holds)
    assert restored.ready_at(KEYS) == 130.0


@given(st.lists(st.floats(0, 5), min_size=2, max_size=50), st.sampled_from([0.5, 1.0, 7.0]))
def test_starts_under_a_rate_are_never_closer_than_its_interval(gaps: list[float], rate: float) -> None:
    gate = Gate(Limits(address=Rate(requests=rate), domain=Rate()))
    now, starts = 0.0, []
    for gap in gaps:
        now = max(now + gap, gate.ready_at(KEYS))
        gate.start(KEYS, now, delay=0.0)
        starts.append(now)
    assert all(b - a >= 1.0 / rate - 1e-9 for a, b in pairwise(starts))


def test_slow_server_gets_a_longer_pause() -> None:
    def delay(response: float, crawl_delay: float = 0.0) -> float:
        manner = Etiquette(delay_seconds=1.0, response_factor=5.0, max_delay_seconds=60.0)
        return next_delay(manner, response_seconds=response, crawl_delay=crawl_delay)

    assert delay(0.01) == 1.0
    assert delay(3.0) == 15.0
    assert delay(100.0) == 60.0
    assert delay(0.01, crawl_delay=90.0) == 90.0
