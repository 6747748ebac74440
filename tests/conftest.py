"""Settings for all tests: how hard hypothesis tries, and which tests `scripts/test --fast` leaves out."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.warm import WarmParents, start_anew

from sterna.host.visiting import workshop
from sterna.runtime.cell import pool

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


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test has readers of its own, started and ended as in production."""
    monkeypatch.setattr(pool, "_spawn", start_anew)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--note-slow", action="store_true", help=f"write the tests of over {SLOW_SECONDS} s to {SLOW.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--note-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what took long when it was last measured."""
    slow = set(SLOW.read_text().splitlines())
    for item in items:
        if _function(item.nodeid) in slow:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Hosts collect garbage after each visit, in 0.3 s if all objects of the tests are looked at too."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or libraries report at the exit that objects of theirs are left


def _function(nodeid: str) -> str:
    """The test function without its parameters."""
    return nodeid.partition("[")[0]


class Stopwatch:
    """Measures each test function, its fixtures and all parameters; changed by pytest's hooks alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_function(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Tests that were not run now stay as they were noted."""
        noted = {name for name in SLOW.read_text().splitlines() if name not in self._seconds}
        noted |= {name for name, seconds in self._seconds.items() if seconds >= SLOW_SECONDS}
        SLOW.write_text("".join(f"{name}\n" for name in sorted(noted)))
