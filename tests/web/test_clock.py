"""The system's clock: durations are monotonic whatever happens to the time of day."""

import time

import pytest

from sterna.web.clock import SystemClock


@pytest.mark.parametrize("jump", [-86_400.0, -1.0, 3_600.0, 1e9])
def test_wall_clock_that_jumps_moves_no_duration(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, monotonic = 1_800_000_000.0, 50.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    clock = SystemClock()
    began = clock.now()
    wall, monotonic = wall + jump, monotonic + 7.0
    assert clock.now() - began == 7.0
    assert SystemClock().now() == wall  # a run that starts after the jump has the new time
