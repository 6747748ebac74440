"""Clocks for tests."""


class StillClock:
    """Stands still until a test sets it, or somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Wall:
    """What a machine's clock shows: it goes on by itself as little as it never jumps."""

    def __init__(self, time: float) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time
