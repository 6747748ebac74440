"""A ledger of an earlier format: brought to this one by who writes, read as it is by who reads."""

import sqlite3
from pathlib import Path

import pytest
from tests.home.ledger import version_2, version_3, version_4, version_5, version_6
from tests.home.ledger.ledger_suite import page, targets
from tests.home.ledger.version_2 import SITE
from tests.making import parcel

from sterna.errors import CollectionError, StorageError
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import Change, SampleRow, Standing, TrustRow
from sterna.home.ledger.sqlite import schema
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Checkpoint, Ended, State, StateChange, Usage
from sterna.web.urls import fingerprint

WRITE = {2: version_2.write, 3: version_3.write, 4: version_4.write, 5: version_5.write, 6: version_6.write}
_STATES = (1, 0.25, ((7, b"fact"),))
KEPT = {2: (0, 0.0, ()), 3: _STATES, 4: _STATES, 5: _STATES, 6: _STATES}  # format 2 knows nothing of these

# The crawlers that were sent out, their parcels, and the host: its key and its priority.
_NONE: tuple[list[str], list[int], tuple[str, int] | None] = ([], [], None)
_ONE = (["v1"], [1], ("ed25519:k", 0))
HOSTS = {2: _NONE, 3: _NONE, 4: _ONE, 5: _ONE, 6: _ONE}


def hosts(ledger: Ledger) -> tuple[list[str], list[int], tuple[str, int] | None]:
    row = ledger.host_row(SITE)
    out, came = [each.visit for each in ledger.outbox()], [each.number for each in ledger.inbox("v1")]
    return out, came, (row.key, row.priority) if row else None


@pytest.fixture(params=WRITE)
def old(request: pytest.FixtureRequest) -> int:
    """The format of the file."""
    version: int = request.param
    return version


@pytest.fixture
def path(tmp_path: Path, old: int) -> Path:
    WRITE[old](tmp_path / "ledger.sqlite")
    return tmp_path / "ledger.sqlite"


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    finally:
        db.close()


def tables(path: Path) -> dict[str, list[tuple[str, str, int, str | None, int]]]:
    """Every table's columns: name, type, whether it may be NULL, default, place in the key."""
    db = sqlite3.connect(path)
    try:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: [row[1:] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}
    finally:
        db.close()


def test_upgraded_file_has_the_tables_of_a_new_one(path: Path, tmp_path: Path) -> None:
    SqliteLedger(path).close()
    SqliteLedger(tmp_path / "new.sqlite").close()
    assert version(path) == schema.VERSION
    assert tables(path) == tables(tmp_path / "new.sqlite")


def test_crawl_goes_on_where_it_was_after_the_upgrade(path: Path, old: int) -> None:
    kept, cpu_seconds, facts = KEPT[old]
    ledger = SqliteLedger(path)
    assert ledger.setting("options") == "{}"
    (lease,) = ledger.lease(["v2"], now=20.0, pages=10, max_depth=64)
    assert [(start.url, start.depth, start.priority, start.attempts) for start in lease.starts] == [
        (f"{SITE}/near", 1, 0, 0),
        (f"{SITE}/far", 7, 0, 2),
    ]
    assert (lease.epoch, lease.state) == (2, State(facts))
    last = parcel(
        lease,
        pages=(page("/near"), page("/far")),
        checkpoint=Checkpoint(found=targets("/urgent", depth=8, priority=5)),
        state=StateChange(added=((1, b"fact"),)),
        usage=Usage(pages=2, kept=2, cpu_seconds=0.5),
        ended=Ended.BUDGET,
    )
    ledger.commit(Change(parcels=(last,)), now=21.0)
    (again,) = ledger.lease(["v3"], now=30.0, pages=10, max_depth=64)
    assert [(start.url, start.priority) for start in again.starts] == [(f"{SITE}/urgent", 5)]
    assert again.state.facts == ((1, b"fact"), *facts)
    assert [(row.visit, row.kept, row.cpu_seconds) for row in ledger.visit_rows()][:2] == [
        ("v1", kept, cpu_seconds),
        ("v2", 2, 0.5),
    ]


def test_pages_of_before_are_visited_again_after_the_upgrade(path: Path, old: int) -> None:
    ledger = SqliteLedger(path)
    assert ledger.refresh(older_than=10.0, now=20.0) == 1
    (lease,) = ledger.lease(["v2"], now=20.0, pages=10, max_depth=64)
    assert [(each.digest, each.likeness) for each in lease.known.validators] == [(b"d", b"")]
    assert hosts(ledger) == HOSTS[old]


def test_reader_reads_the_file_as_it_is(path: Path, old: int) -> None:
    kept, _, facts = KEPT[old]
    before = path.read_bytes()
    ledger = SqliteLedger(path, is_reader=True)
    (site,), (visit,), (segment,) = ledger.site_rows(), ledger.visit_rows(), ledger.segments()
    assert (site.site, visit.visit, visit.bytes_received, visit.kept) == (SITE, "v1", 300, kept)
    assert segment.name == "0.page.parquet"
    assert (ledger.counts(now=20.0).pending, ledger.counts(now=20.0).kept) == (2, 0)
    assert (len(ledger.facts()), ledger.state(SITE)) == (len(facts), State(facts))
    assert (hosts(ledger), ledger.luggage("v1")) == (HOSTS[old], b"")
    assert (ledger.trust.rows(), ledger.trust.samples(SITE), ledger.receipts()) == ([], [], [])
    assert ledger.counts(now=20.0).away == 0
    assert ledger.batch() == 0
    ledger.close()
    assert (path.read_bytes(), version(path)) == (before, old)


def test_batches_are_counted_after_the_upgrade_and_pages_of_before_come_again(path: Path) -> None:
    ledger = SqliteLedger(path)
    stored = (SITE, fingerprint(f"{SITE}/"))
    known = ledger.standings({stored, (SITE, fingerprint(f"{SITE}/near"))})
    assert known == {stored: Standing(200, "", True)}
    ledger.commit(Change(parcels=(), batch=1), now=21.0)
    assert ledger.batch() == 1


def test_reader_that_came_before_the_upgrade_reads_on(path: Path) -> None:
    reader = SqliteLedger(path, is_reader=True)
    writer = SqliteLedger(path)
    assert [row.visit for row in reader.visit_rows()] == ["v1"]
    assert reader.counts(now=20.0).pages == writer.counts(now=20.0).pages == 1


def test_upgrade_that_fails_leaves_the_file_as_it_was(
    path: Path, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(path)
    broken = {old: schema.UPGRADES[old] + "ALTER TABLE nowhere ADD COLUMN x;"}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "UPGRADES", broken)
        with pytest.raises(StorageError, match="nowhere"):
            SqliteLedger(path)
    assert (tables(path), version(path)) == (before, old)
    SqliteLedger(path).close()
    assert version(path) == schema.VERSION


@pytest.mark.parametrize("is_reader", [False, True])
def test_format_that_is_too_old_is_refused(path: Path, is_reader: bool) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(CollectionError, match="format 1"):
        SqliteLedger(path, is_reader=is_reader)


def test_what_a_host_is_believed_is_kept_after_the_upgrade(path: Path) -> None:
    ledger = SqliteLedger(path)
    row = TrustRow(site=SITE, key="ed25519:k", good=3.0, at=20.0)
    ledger.trust.set(row, [SampleRow(visit="v1", url=f"{SITE}/", site=SITE, verdict="same", at=20.0)])
    ledger.set_priority(SITE, 4)
    ledger.add_receipt("v1", SITE, b"signed")
    reader = SqliteLedger(path, is_reader=True)
    assert (reader.trust.row(SITE), len(reader.trust.samples(SITE))) == (row, 1)
    assert reader.receipts() == [("v1", SITE, b"signed")]
    kept = reader.host_row(SITE)
    assert kept and kept.priority == 4
