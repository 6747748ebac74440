"""Requests that somebody else makes to a site keep its delay and the rates of its address, too."""

import asyncio

import pytest
from tests.runtime.fakes import BEGIN, FakeWeb, make_kit, polite, run, visit_of

from sterna.errors import FetchError
from sterna.model import Hold
from sterna.runtime.runtime import Runtime
from sterna.web.politeness import NO_LIMITS, Limits, Rate, site_key


def turns(
    *, limits: Limits = NO_LIMITS, count: int = 3, connections: int = 100, **fields: object
) -> list[float]:
    """When so many requests may start that want to at once, in seconds from the beginning."""

    async def main() -> list[float]:
        runtime = Runtime(make_kit(FakeWeb({}), limits=limits, connections=connections))
        loop = asyncio.get_running_loop()

        async def one() -> float:
            await runtime.take_turn(visit_of(**fields))
            return round(loop.time() - BEGIN, 3)

        return sorted(await asyncio.gather(*(one() for _ in range(count))))

    return run(main())


def test_site_without_a_delay_may_be_asked_at_once() -> None:
    assert turns() == [0.0, 0.0, 0.0]


def test_next_turn_comes_after_the_delay_of_the_site() -> None:
    assert turns(etiquette=polite(delay_seconds=2.0)) == [0.0, 2.0, 4.0]


def test_turn_waits_for_a_hold_that_the_visit_brings() -> None:
    holds = (Hold(site_key(visit_of().site), BEGIN + 5.0),)
    assert turns(holds=holds, count=1) == [5.0]


def test_turn_waits_for_the_rate_of_the_address() -> None:
    assert turns(limits=Limits(address=Rate(0.5))) == [0.0, 2.0, 4.0]


def test_turn_keeps_no_connection() -> None:
    assert turns(connections=1) == [0.0, 0.0, 0.0]


def test_site_on_a_private_network_gives_no_turn() -> None:
    async def main() -> None:
        await Runtime(make_kit(FakeWeb({}), names={"a.test": ["10.0.0.1"]})).take_turn(visit_of())

    with pytest.raises(FetchError, match="private_address"):
        run(main())
