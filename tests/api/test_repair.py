"""Repair with what follows a collection: the search index and positions; and the command."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crawl.running import ask, sterna
from tests.home.repair import wrecks
from tests.home.repair.wrecks import aside, flip, segment

from sterna.api.repair import repair
from sterna.api.search import bring_up, search
from sterna.api.status import index_state
from sterna.errors import DamagedSegment
from sterna.home.folder import CollectionFolder
from sterna.search.generations import current
from sterna.search.indexer import Indexer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CollectionFolder:
    collection = wrecks.make(tmp_path_factory.mktemp("whole") / "c")
    bring_up(collection)
    return collection


@pytest.fixture
def collection(whole: CollectionFolder, tmp_path: Path) -> CollectionFolder:
    return wrecks.copy(whole, tmp_path / "c")


def test_collection_with_a_good_index_is_in_order(collection: CollectionFolder) -> None:
    assert repair(collection).findings == ()


def flip_index_file(collection: CollectionFolder) -> None:
    generation = current(collection.index_folder)
    assert generation
    flip(max(generation.glob("*.store"), key=lambda path: path.stat().st_size), 100)


def lose_index_file(collection: CollectionFolder) -> None:
    generation = current(collection.index_folder)
    assert generation
    next(generation.glob("*.term")).unlink()


def make_index_file_unreadable(collection: CollectionFolder) -> None:
    generation = current(collection.index_folder)
    assert generation
    path = next(generation.glob("*.store"))
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [flip_index_file, lose_index_file, make_index_file_unreadable])
def test_damaged_index_is_made_anew(
    collection: CollectionFolder, damage: Callable[[CollectionFolder], None]
) -> None:
    damage(collection)
    (finding,) = repair(collection).findings
    assert finding.part == "index"
    assert index_state(collection).pages_left == 0
    (hit,) = search(collection, "text").hits
    assert len(hit.folded) == 19  # all are alike
    assert "index" in aside(collection)
    assert repair(collection).findings == ()


def test_index_ahead_of_the_ledger_is_made_anew_and_no_number_is_given_twice(
    collection: CollectionFolder,
) -> None:
    with collection.open_ledger(is_reader=False) as ledger, ledger._database.transaction() as db:
        db.execute("UPDATE tally SET amount = 2 WHERE name = 'batches'")
    for table in ("page", "link", "fact"):
        segment(collection, table).unlink()
    parts = {finding.part for finding in repair(collection).findings}
    assert {"position", "index"} <= parts
    with collection.open_ledger() as ledger:
        assert ledger.batch() == 1_000_000
    assert repair(collection).findings == ()


def test_follower_stops_at_a_damaged_segment_and_goes_on_after_the_repair(
    collection: CollectionFolder, tmp_path: Path
) -> None:
    bad = segment(collection, "page")
    bad.write_bytes(bad.read_bytes()[:-50])
    with (
        Indexer(tmp_path / "index") as indexer,
        pytest.raises(DamagedSegment, match="run 'sterna repair"),
    ):
        indexer.catch_up(collection.snapshot(), stop=threading.Event())
    with Indexer(tmp_path / "index") as indexer:
        assert indexer.batch < collection.snapshot().batch  # no row was passed over
        repair(collection)
        indexer.catch_up(collection.snapshot(), stop=threading.Event())
        indexer.commit()
        assert (indexer.batch, indexer.pages) == (collection.snapshot().batch, 15)


# --- the command


def test_command_tells_what_it_found_and_mended(collection: CollectionFolder) -> None:
    bad = segment(collection, "page")
    bad.write_bytes(bad.read_bytes()[:-50])
    collection.ledger_path.unlink()
    told = sterna("repair", collection.folder, "--dry-run")
    assert told.returncode == 1
    assert "nothing changed" in told.stdout
    mended = sterna("repair", collection.folder)
    assert mended.returncode == 0
    lines = mended.stdout.splitlines()
    assert lines[0].startswith("ledger ledger.sqlite: it is missing; made anew from 9 segments")
    assert lines[1].startswith(f"segment {bad.name}: ")
    assert any(line.startswith("lost: ") for line in lines)
    assert lines[-1] == f"{collection.folder}: 2 findings, mended"
    again = sterna("repair", collection.folder, "--json")
    assert (again.returncode, json.loads(again.stdout)["findings"]) == (0, [])


def test_crawl_query_and_status_without_a_ledger_name_the_repair(collection: CollectionFolder) -> None:
    collection.ledger_path.unlink()
    before = wrecks.files(collection)
    commands: list[list[str | Path]] = [
        ["crawl", "--into", collection.folder],
        ["query", collection.folder, "SELECT 1"],
        ["status", collection.folder],
        ["index", collection.folder],
        ["export", collection.folder, "--to", "jsonl", "--out", "-"],
    ]
    for command in commands:
        result = sterna(*command)
        assert result.returncode == 5, command
        assert f"run 'sterna repair {collection.folder}'" in result.stderr, command
    assert wrecks.files(collection) == before


def test_query_warns_once_and_answers(collection: CollectionFolder) -> None:
    bad = segment(collection, "page")
    bad.unlink()
    result = sterna("query", collection.folder, "SELECT count(*) AS n FROM page", "--format", "csv")
    assert (result.returncode, result.stdout.split()) == (0, ["n", "15"])
    assert result.stderr.count(bad.name) == 1
    assert ask(collection.folder, "SELECT count(*) AS n FROM link") == [{"n": 80}]


def test_folder_that_is_no_collection_is_refused(tmp_path: Path) -> None:
    result = sterna("repair", tmp_path)
    assert result.returncode == 5
    assert "is not a collection" in result.stderr
