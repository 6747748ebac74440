"""The SQLite ledger passes the conformance suite, and answers for its file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.home.ledger.batch_suite import BatchSuite

from sterna.errors import CollectionError, StorageError
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.ledger.sqlite.lookup import look_up_sql
from sterna.home.ledger.sqlite.pages import standings_sql
from sterna.model import Target


class TestSqliteLedger(BatchSuite):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Ledger]:
        return lambda: SqliteLedger(tmp_path / "ledger.sqlite")

    @pytest.fixture
    def ledger(self, reopen: Callable[[], Ledger]) -> Ledger:
        return reopen()


def test_reader_sees_what_was_committed_while_the_writer_is_open(tmp_path: Path) -> None:
    writer = SqliteLedger(tmp_path / "ledger.sqlite")
    reader = SqliteLedger(tmp_path / "ledger.sqlite", is_reader=True)
    writer.seed([Target("https://a.example/")], now=1.0)
    assert reader.counts(now=1.0).pending == 1


def test_links_are_searched_for_and_known_is_never_read_from_end_to_end(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    plan = ledger._database.connection.execute(f"EXPLAIN QUERY PLAN {look_up_sql(2)}", [0] * 6).fetchall()
    assert [step for *_, step in plan if "known" in step] == [
        "SEARCH known USING PRIMARY KEY (site_id=? AND fingerprint=?) LEFT-JOIN"
    ]


def test_pages_are_searched_for_and_never_read_from_end_to_end(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    plan = ledger._database.connection.execute(f"EXPLAIN QUERY PLAN {standings_sql(2)}", [0] * 4).fetchall()
    searched = [step.split(" USING")[0] for *_, step in plan if "SEARCH" in step]
    assert searched == ["SEARCH site", "SEARCH page"]


def test_descriptor_that_another_thread_closes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.readlink

    def closed_meanwhile(path: str | Path) -> str:
        if str(path).endswith("/1"):
            raise FileNotFoundError(path)
        return read(path)

    advised: list[int] = []
    monkeypatch.setattr(os, "readlink", closed_meanwhile)
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *_: advised.append(fd))
    SqliteLedger(tmp_path / "ledger.sqlite").close()
    assert advised


def test_file_that_is_no_database_is_refused_in_clear_words(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="failed"):
        SqliteLedger(tmp_path / "ledger.sqlite")


def test_ledger_of_another_format_is_refused(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger._database.connection.execute("PRAGMA user_version = 99")
    ledger.close()
    with pytest.raises(CollectionError, match="format 99"):
        SqliteLedger(tmp_path / "ledger.sqlite")


def test_full_disk_undoes_the_whole_transaction(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    connection = ledger._database.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [Target(f"https://a.example/{number}") for number in range(5000)]
    with pytest.raises(StorageError, match="full: free some space"):
        ledger.seed(many, now=1.0)
    assert ledger.counts(now=1.0).pending == 0


@pytest.mark.parametrize("priority", [0, 5, -5])
def test_lease_reads_the_frontier_in_its_order_and_never_sorts_it(tmp_path: Path, priority: int) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger.seed([Target("https://a.example/", priority=priority)], now=1.0)
    connection, statements = ledger._database.connection, list[str]()
    connection.set_trace_callback(statements.append)
    ledger.lease(["v"], now=2.0, pages=10, max_depth=9)
    connection.set_trace_callback(None)
    reading = [each for each in statements if each.startswith("SELECT") and "frontier" in each]
    plans = [step for each in reading for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {each}")]
    assert not [step for step in plans if "SCAN f" in step or "TEMP B-TREE" in step]
    assert "SEARCH f USING PRIMARY KEY (site_id=? AND part=? AND rank>? AND rank<?)" in plans
