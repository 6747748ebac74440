"""Settings for all tests: how hard hypothesis tries, and which tests `scripts/test --fast` leaves out."""

import gc
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.warm import WarmParents, start_anew
from tests.workers import Workers

from sterna.host.visiting import reception, workshop
from sterna.runtime.cell import pool
from sterna.runtime.cell.jail import protection

# A busy machine is no fault of a test: no example has a deadline.
settings.register_profile(
    "sterna", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sterna")

SLOW = Path(__file__).parent / "slow.txt"
SLOW_SECONDS = 0.1


@pytest.fixture(scope="session", autouse=True)
def _keep_priority() -> Iterator[None]:
    """A host that runs in the process of the tests must not make all later tests give way to others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workshop, "give_way", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _share_warm_parents() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, closing(WarmParents()) as parents:
        patch.setattr(pool, "_spawn", parents.spawn)
        yield


@pytest.fixture(scope="session", autouse=True)
def _try_the_jail_once() -> Iterator[None]:
    """A host tries out with its first visit whether a jail holds here, which takes as long as a start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reception, "protection", cache(protection))
        yield


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test has readers of its own, started and ended as in production."""
    monkeypatch.setattr(pool, "_spawn", start_anew)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--note-slow", action="store_true", help=f"write the tests of over {SLOW_SECONDS} s to {SLOW.name}"
    )
    parser.addoption("--workers", type=int, default=1, help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with SIGINT ignored, and processes of tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--note-slow"):
        config.pluginmanager.register(Stopwatch())
    if config.getoption("--workers") > 1:
        config.pluginmanager.register(Workers(config.getoption("--workers")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what took long when it was last measured."""
    slow = _noted()
    items_of = Counter(_function(item.nodeid) for item in items)
    for item in items:
        name = _function(item.nodeid)
        if name in slow:
            item.add_marker(pytest.mark.slow(seconds=slow[name] / items_of[name]))


def pytest_collection_finish() -> None:
    """Hosts collect garbage after each visit, in 0.3 s if all objects of the tests are looked at too."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or libraries report at the exit that objects of theirs are left


def _function(nodeid: str) -> str:
    """The test function without its parameters."""
    return nodeid.partition("[")[0]


def _noted() -> dict[str, float]:
    """The slow functions with their seconds."""
    lines = (line.split(" ", 1) for line in SLOW.read_text().splitlines())
    return {name: float(seconds) for seconds, name in lines}


class Stopwatch:
    """Measures each test function, its fixtures and all parameters; changed by pytest's hooks alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_function(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Tests that were not run now stay as they were noted."""
        noted = {**_noted(), **self._seconds}
        lines = [f"{noted[name]:.1f} {name}\n" for name in sorted(noted) if noted[name] >= SLOW_SECONDS]
        SLOW.write_text("".join(lines))
