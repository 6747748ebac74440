"""Which signal comes when, and to whom: drawn from the seed, the scenario and the round, nothing else.

What a stroke hits depends on the processes that there are when it is due; the draws themselves never do.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

FIRST_SECONDS = 2.0  # the first stroke comes within them: before the first page, or among them
MEAN_WAIT_SECONDS = 0.35
BURST_SHARE = 0.2  # of the strokes follow the one before at once, into whatever that one began
BURST_SECONDS = 0.02
KILL_SHARE = 0.5
# How long a stopped process stays so: a moment, some seconds, or longer than most timeouts.
PAUSES = ((0.80, 0.02, 0.6), (0.18, 0.6, 4.0), (0.02, 22.0, 65.0))


class Role(StrEnum):
    """What a process does in a crawl."""

    HOME = "home"
    HOST = "host"
    WARM_PARENT = "warm parent"
    READER = "reader"
    ENGINE = "engine"
    INDEXER = "indexer"
    STORAGE = "storage"  # copies rows into databases
    CONFINED = "confined"  # reads segments for home or storage
    POSTGRES = "PostgreSQL"


# What is always there is struck less often than what comes with the first pages.
WEIGHTS = {
    Role.HOME: 0.6,
    Role.HOST: 0.6,
    Role.WARM_PARENT: 1.5,
    Role.READER: 2.5,
    Role.ENGINE: 2.5,
    Role.INDEXER: 2.5,
    Role.STORAGE: 2.5,
    Role.CONFINED: 2.5,
    Role.POSTGRES: 0.8,
}


@dataclass(frozen=True, slots=True)
class Stroke:
    """One signal to come; the draws, from 0 to 1, choose the process among those that there are."""

    wait_seconds: float  # after the stroke before
    role_draw: float
    process_draw: float
    is_kill: bool
    pause_seconds: float  # before a stopped process continues


def strokes(seed: int, scenario: str, number: int) -> Iterator[Stroke]:
    """The strokes of a round, without an end."""
    chance = random.Random(f"{seed}/{scenario}/{number}")
    wait = chance.uniform(0.0, FIRST_SECONDS)
    while True:
        _, least, most = chance.choices(PAUSES, [share for share, _, _ in PAUSES])[0]
        yield Stroke(
            wait_seconds=wait,
            role_draw=chance.random(),
            process_draw=chance.random(),
            is_kill=chance.random() < KILL_SHARE,
            pause_seconds=chance.uniform(least, most),
        )
        is_burst = chance.random() < BURST_SHARE
        wait = chance.random() * BURST_SECONDS if is_burst else chance.expovariate(1 / MEAN_WAIT_SECONDS)


def choose(stroke: Stroke, present: Mapping[Role, Sequence[int]]) -> tuple[Role, int] | None:
    """The process that a stroke hits: a role by weight, then one process of it; None if there is none."""
    roles = [role for role in Role if present.get(role)]
    if not roles:
        return None
    sums = list(accumulate(WEIGHTS[role] for role in roles))
    role = next(role for role, until in zip(roles, sums, strict=True) if stroke.role_draw * sums[-1] < until)
    processes = sorted(present[role])
    return role, processes[int(stroke.process_draw * len(processes))]
