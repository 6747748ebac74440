"""Databases for the tests of storage: SQLite everywhere, and a PostgreSQL of the tests' own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.servers.postgres import PostgresServer, cluster
from tests.storage.places import Place, PostgresPlace, SqlitePlace
from tests.storage.stock import Stock, pages


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with cluster() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes a new, empty database of either kind."""
    count = iter(range(100))

    def make() -> Place:
        if request.param == "sqlite":
            return SqlitePlace(tmp_path / f"pages-{next(count)}.db")
        return PostgresPlace(request.getfixturevalue("postgres"))

    return make


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    return new_place()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look for new batches and retry without the pauses of real use."""
    monkeypatch.setattr("sterna.storage.manager.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("sterna.storage.manager.FIRST_SECONDS", 0.05)


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[Stock]:
    with Stock(tmp_path / "c") as stock:
        yield stock


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """One batch of twelve pages, for tests that change the rules only."""
    with Stock(tmp_path_factory.mktemp("filled") / "c") as stock:
        stock.put(pages(0, 12))
        yield stock
