"""A crawler that is kept until its hours: its home waits with it, or comes back for its parcels."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.home.away.test_trips_to_a_service import ALL, Cutter, Outing, outing_at
from tests.host.knocking import until

from sterna.errors import Refused
from sterna.host.policy.policy import Policy
from sterna.host.visiting import hosted, overseer
from sterna.model import Ended


class Later:
    """The machine's clock, which a test sets forward; both sides must still agree within two minutes."""

    def __init__(self) -> None:
        now = time.time()
        self.begin = (now + 5) // 60 * 60 + 60
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead

    def come(self) -> None:
        """The hours begin."""
        self.ahead = self.begin - time.time() + 1

    def policy(self, outside_hours: str) -> Policy:
        begin, end = (f"{time.gmtime(at).tm_hour:02}:{time.gmtime(at).tm_min:02}" for at in self._slot())
        fields = {"zone": "UTC", "hours": [f"daily {begin}-{end}"], "outside_hours": outside_hours}
        return msgspec.convert(fields, Policy)

    def _slot(self) -> Iterator[float]:
        yield self.begin
        yield self.begin + 1800


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(hosted, "ALIVE_SECONDS", 0.1)


@pytest.fixture
def later() -> Later:
    return Later()


def keeping(later: Later) -> dict[str, Any]:
    return {"policy": later.policy("keep"), "serving": {"wall": later}}


def is_waiting(outing: Outing) -> bool:
    return any(each.state == "waiting" for each in outing.home.service.status().visits)


async def test_home_waits_with_its_crawler_until_its_hours_begin(tmp_path: Path, later: Later) -> None:
    async with outing_at(tmp_path, **keeping(later)) as outing:
        going = asyncio.create_task(outing.go())
        await until(lambda: is_waiting(outing))
        await asyncio.sleep(0.3)
        assert not going.done()
        later.come()
        trip = await going
    assert set(outing.paths) == ALL
    assert (trip.ended, trip.is_proven, trip.cuts) == (Ended.FINISHED, True, 0)


async def test_home_that_is_cut_off_while_its_crawler_waits_comes_back(tmp_path: Path, later: Later) -> None:
    cutter = Cutter(2)
    async with outing_at(tmp_path, through=cutter.through, **keeping(later)) as outing:
        going = asyncio.create_task(outing.go())
        await until(lambda: cutter.cuts == 1)
        await asyncio.sleep(0.3)
        later.come()
        trip = await going
    assert set(outing.paths) == ALL
    assert (trip.ended, trip.is_proven, trip.cuts) == (Ended.FINISHED, True, 1)


async def test_parcels_wait_for_a_home_that_was_away(tmp_path: Path, later: Later) -> None:
    async with outing_at(tmp_path, **keeping(later)) as outing:
        going = asyncio.create_task(outing.go())
        await until(lambda: is_waiting(outing))
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        later.come()
        await until(lambda: outing.home.service.status().visits[0].state == "finished")
        trip = await outing.go(resume_from=1)
    assert set(outing.paths) == ALL
    assert trip.ended is Ended.FINISHED


async def test_home_that_is_refused_is_told_when_to_come(tmp_path: Path, later: Later) -> None:
    fields: dict[str, Any] = {"policy": later.policy("refuse"), "serving": {"wall": later}}
    async with outing_at(tmp_path, **fields) as outing:
        with pytest.raises(Refused) as caught:
            await outing.go()
    assert caught.value.problem == "closed-now"
    assert caught.value.retry_after
    assert 0 < caught.value.retry_after <= 126
