"""The SQLite ledger passes the conformance suite, and answers for its file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.home.ledger_suite import LedgerSuite

from sterna.errors import CollectionError, StorageError
from sterna.home.ledger import Ledger
from sterna.home.sqlite.ledger import SqliteLedger
from sterna.home.sqlite.lookup import look_up_sql
from sterna.model import Target


class TestSqliteLedger(LedgerSuite):
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


def test_file_that_is_no_database_is_refused_in_clear_words(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="cannot be used"):
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
