"""Each kind of damage is found and mended as far as it can be; no good row is lost, none is there twice."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import making
from tests.home.repair import wrecks
from tests.home.repair.wrecks import (
    BATCHES,
    NOW,
    PAGES,
    SITE,
    Wreck,
    aside,
    flip,
    mend,
    segment,
    urls,
    waiting,
)
from warcio.archiveiterator import ArchiveIterator

from sterna.errors import CollectionInUse, LedgerLost, NotACollection
from sterna.home.folder import MARKER, CollectionFolder
from sterna.home.ledger.sqlite.ledger import SqliteLedger

ALL = sorted(f"{SITE}/{number}" for number in range(BATCHES * PAGES))
LEFT = {f"{SITE}/20", f"{SITE}/21"}  # linked, and not fetched yet


def batch(number: int) -> set[str]:
    """The URLs of a batch."""
    return {f"{SITE}/{each}" for each in range(PAGES * (number - 1), PAGES * number)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CollectionFolder:
    return wrecks.make(tmp_path_factory.mktemp("whole") / "c")


@pytest.fixture
def collection(whole: CollectionFolder, tmp_path: Path) -> CollectionFolder:
    return wrecks.copy(whole, tmp_path / "c")


def test_collection_in_order_is_left_as_it_is(collection: CollectionFolder) -> None:
    before = wrecks.files(collection)
    assert mend(collection).findings == ()
    assert wrecks.files(collection) == before


def test_collection_before_its_first_crawl_is_in_order(tmp_path: Path) -> None:
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        pass
    assert mend(collection).findings == ()
    assert not collection.ledger_path.exists()


def test_merged_segments_that_wait_for_their_removal_are_in_order(tmp_path: Path) -> None:
    wreck = Wreck(tmp_path / "c")
    for number in range(2):
        wreck.put([wrecks.page(PAGES * number + each) for each in range(PAGES)])
    parts = [each for each in wreck.ledger.segments() if each.table == "page"]
    wreck.ledger.replace_segments(parts, wreck.segments.merge(parts), now=NOW)
    wreck.close()
    before = wrecks.files(wreck.collection)
    assert mend(wreck.collection).findings == ()
    assert wrecks.files(wreck.collection) == before


# --- the ledger


def scramble_header(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(100) + path.read_bytes()[100:])


def scramble_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8192] = random.Random(2).randbytes(8192)
    path.write_bytes(data)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


LEDGERS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "0 bytes": lambda path: path.write_bytes(b""),
    "truncated": halve,
    "another file": lambda path: path.write_bytes(b"not a database" * 1_000),
    "scrambled header": scramble_header,
    "scrambled pages": scramble_pages,
}


@pytest.mark.parametrize("damage", LEDGERS)
def test_damaged_ledger_is_made_anew_from_the_archive(collection: CollectionFolder, damage: str) -> None:
    links, facts = (sorted(wrecks.rows(collection, table)) for table in ("link", "fact"))
    validators = wrecks.known(collection, "SELECT url, etag, modified, digest, has_raw FROM page")
    LEDGERS[damage](collection.ledger_path)
    made = mend(collection)
    assert [finding.part for finding in made.findings] == ["ledger"]
    assert made.pages_again == 0
    assert urls(collection) == ALL
    assert sorted(wrecks.rows(collection, "link")) == links
    assert sorted(wrecks.rows(collection, "fact")) == facts
    assert waiting(collection) == LEFT
    assert wrecks.known(collection, "SELECT url, etag, modified, digest, has_raw FROM page") == validators
    assert "ledger.sqlite" in aside(collection) or damage == "missing"
    assert mend(collection).findings == ()


def test_ledger_made_anew_knows_settings_sites_visits_and_counters(collection: CollectionFolder) -> None:
    collection.ledger_path.unlink()
    made = mend(collection)
    assert "pinned" in " ".join(made.lost)
    with collection.open_ledger() as ledger:
        counts = ledger.counts(now=NOW)
        assert (counts.pages, counts.sites, counts.pending) == (20, 1, 2)
        assert ledger.seed_sites() == {SITE}
        assert ledger.blocked() == {"ads.example.org"}
        (visit,) = ledger.visit_rows()
        assert (visit.visit, visit.pages, visit.began) == ("v1", 20, NOW)
        assert '"exclude":["/private/"]' in (ledger.setting("options") or "")
        assert f'"seeds":["{SITE}/0"]' in (ledger.setting("options") or "")
        assert ledger.setting("collection") == collection.id()
        # Followers may have counted batches without rows: no number is given twice.
        assert ledger.batch() == 1_000_000


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO segment VALUES ('../../victim', 'page', 1, 1, 0, 1.0)",  # retired: to be removed
        "UPDATE segment SET name = '/etc/passwd' WHERE name = (SELECT min(name) FROM segment)",
        "INSERT INTO warc VALUES ('../../victim', 3, 1)",  # open: to be cut and written
        "INSERT INTO segment VALUES (x'2e2e', 'page', 1, 1, 0, 1.0)",
    ],
)
def test_ledger_that_names_files_elsewhere_is_refused_and_made_anew(
    collection: CollectionFolder, statement: str
) -> None:
    victim = collection.folder.parent / "victim"
    victim.write_text("precious")
    with closing(sqlite3.connect(collection.ledger_path)) as db, db:
        db.execute(statement)
    for is_reader in (True, False):
        with pytest.raises(LedgerLost, match=r"names a file outside of its collection.*sterna repair"):
            collection.open_ledger(is_reader=is_reader)
    assert mend(collection).findings
    assert urls(collection) == ALL
    assert victim.read_text() == "precious"


def test_site_that_was_crawled_to_its_end_is_due_again_after_a_repair(tmp_path: Path) -> None:
    wreck = Wreck(tmp_path / "c")
    wreck.put([making.page("/0", fetched=NOW), making.page("/1", fetched=NOW)])
    wreck.close()
    wreck.collection.ledger_path.unlink()
    mend(wreck.collection)
    with closing(SqliteLedger(wreck.collection.ledger_path)) as ledger:
        assert ledger.refresh(older_than=NOW + 1, now=NOW + 2_000) == 2
        assert ledger.due_count(now=NOW + 2_000, most=9) == 1


def test_damaged_ledger_that_lost_its_turns_gives_every_site_a_new_one(collection: CollectionFolder) -> None:
    with closing(sqlite3.connect(collection.ledger_path)) as db, db:
        db.execute("DELETE FROM part")
    scramble_pages(collection.ledger_path)
    mend(collection)
    with closing(SqliteLedger(collection.ledger_path)) as ledger:
        ledger.wake(now=NOW + 2_000)
        assert ledger.due_count(now=NOW + 2_000, most=9) == 1


def test_readable_part_of_a_damaged_ledger_is_kept(collection: CollectionFolder) -> None:
    with collection.open_ledger(is_reader=False) as ledger:
        ledger.set_setting("errand", "abc")
        ledger.add_receipt("v1", SITE, b"signed")
    scramble_pages(collection.ledger_path)
    mend(collection)
    with collection.open_ledger() as ledger:
        kept = (ledger.setting("errand"), ledger.receipts())
        assert "abc" in str(kept) or "signed" in str(kept)


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_ledger_that_lost_its_log_learns_what_came_later(tmp_path: Path, damage: str) -> None:
    wreck = Wreck(tmp_path / "made")
    for number in range(2):
        wreck.put([wrecks.page(PAGES * number + each) for each in range(PAGES)])
    wreck.ledger._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(2, BATCHES):
        wreck.put([wrecks.page(PAGES * number + each) for each in range(PAGES)])
    collection = wrecks.copy(wreck.collection, tmp_path / "c")  # as a kill leaves it
    wreck.close()
    log = collection.folder / "ledger.sqlite-wal"
    (collection.folder / "ledger.sqlite-shm").unlink()
    if damage == "missing":
        log.unlink()
    else:
        flip(log, 40, length=4_000)
    made = mend(collection)
    assert {finding.part for finding in made.findings} == {"ledger", "segment", "warc"}
    assert urls(collection) == ALL
    assert waiting(collection) == LEFT
    with collection.open_ledger() as ledger:
        assert ledger.batch() > BATCHES
        assert len(ledger.warc_positions()) == 1
    assert mend(collection).findings == ()


def test_ledger_of_another_collection_is_set_aside(collection: CollectionFolder, tmp_path: Path) -> None:
    other = wrecks.make(tmp_path / "other")
    shutil.copy(other.ledger_path, collection.ledger_path)
    made = mend(collection)
    assert "belongs to another collection" in made.findings[0].damage
    assert urls(collection) == ALL
    assert mend(collection).findings == ()


# --- segments


def write_foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), path)


def flip_rows(path: Path, *, group: int = 0, column: int = 0) -> None:
    """Changes the end of a column, which is the content of its last page."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    flip(path, start + chunk.total_compressed_size - 4, length=4)


def flip_footer(path: Path) -> None:
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    flip(path, -8 - length, length=60)


SEGMENTS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "0 bytes": lambda path: path.write_bytes(b""),
    "truncated": halve,
    "flipped in its rows": flip_rows,
    "flipped in its footer": flip_footer,
    "another Parquet file": write_foreign,
}


@pytest.mark.parametrize("damage", SEGMENTS)
@pytest.mark.parametrize("table", ["page", "link", "fact"])
def test_damaged_segment_costs_its_own_rows_only_and_its_pages_are_fetched_again(
    collection: CollectionFolder, table: str, damage: str
) -> None:
    path = segment(collection, table)  # of the last batch
    before = {name: sorted(wrecks.rows(collection, name)) for name in ("page", "link", "fact")}
    SEGMENTS[damage](path)
    made = mend(collection)
    assert [(finding.part, finding.name) for finding in made.findings] == [("segment", path.name)]
    after = {name: sorted(wrecks.rows(collection, name)) for name in before}
    assert {name for name in before if before[name] != after[name]} == {table}
    assert len(after[table]) == len(before[table]) * 3 // 4
    assert made.pages_again == PAGES
    assert waiting(collection) == LEFT | batch(BATCHES)
    again = wrecks.known(collection, "SELECT url FROM page WHERE etag = '' AND digest = x''")
    assert {SITE + path for (path,) in again} == batch(BATCHES)
    assert aside(collection) == (set() if damage == "missing" else {path.name})
    assert mend(collection).findings == ()


def test_rows_before_and_behind_a_damaged_part_of_a_segment_are_kept(
    collection: CollectionFolder,
) -> None:
    path = segment(collection, "page", 0)  # merged: batches 1 and 2
    rows = pq.read_table(path)
    with pq.ParquetWriter(path, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(rows, row_group_size=2)
    flip_rows(path, group=2, column=6)  # the texts of pages 4 and 5
    made = mend(collection)
    lost = {f"{SITE}/4", f"{SITE}/5"}
    assert "8 rows kept, 2 lost" in made.findings[0].remedy
    assert set(urls(collection)) == set(ALL) - lost
    assert made.pages_again == 2
    assert waiting(collection) == LEFT | lost


def test_segment_of_another_collection_is_set_aside(collection: CollectionFolder, tmp_path: Path) -> None:
    foreign = segment(wrecks.make(tmp_path / "other"), "page")
    shutil.copy(foreign, collection.segments_folder)
    made = mend(collection)
    assert [finding.damage for finding in made.findings] == ["it belongs to another collection"]
    assert aside(collection) == {foreign.name}
    assert urls(collection) == ALL


@pytest.mark.parametrize("tables", [("page", "link", "fact"), ("page",), ("link", "fact")])
def test_batch_that_a_kill_left_uncommitted_is_added_and_completed(
    tmp_path: Path, tables: tuple[str, ...]
) -> None:
    """Segments are written one after the other, so the last ones may be missing, or lost by a disk."""
    wreck = Wreck(tmp_path / "c")
    wreck.put([wrecks.page(each) for each in range(PAGES)])
    wreck.ledger._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(wreck.collection.ledger_path, tmp_path / "before")
    known = {each.name for each in wreck.ledger.segments()}
    wreck.put([wrecks.page(PAGES + each) for each in range(PAGES)])
    new = [each for each in wreck.ledger.segments() if each.name not in known]
    wreck.close()
    shutil.copy(tmp_path / "before", wreck.collection.ledger_path)
    for each in new:
        if each.table not in tables:
            wreck.segments.path(each.name).unlink()
    made = mend(wreck.collection)
    done = batch(1) | (batch(2) if "page" in tables else set())
    assert set(urls(wreck.collection)) == done
    assert made.pages_again == (PAGES if tables == ("page",) else 0)
    expected = {f"{SITE}/10", f"{SITE}/11"} if "link" in tables else set()
    assert waiting(wreck.collection) == expected | (set() if len(tables) == 3 else batch(2))
    assert mend(wreck.collection).findings == ()


@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize("counts", ["the merged one", "its parts"])
def test_merged_segments_and_their_parts_are_not_stored_twice(
    tmp_path: Path, counts: str, has_ledger: bool
) -> None:
    wreck = Wreck(tmp_path / "c")
    for number in range(BATCHES):
        wreck.put([wrecks.page(PAGES * number + each) for each in range(PAGES)])
    parts = [each for each in wreck.ledger.segments() if each.table == "page"][:3]
    merged = wreck.segments.merge(parts)  # and is killed
    if counts == "the merged one":
        wreck.ledger.replace_segments(parts, merged, now=NOW)
        wreck.ledger.forget_retired(before=NOW + 1)  # and is killed
    wreck.close()
    if not has_ledger:
        wreck.collection.ledger_path.unlink()
    mend(wreck.collection)
    assert urls(wreck.collection) == ALL
    is_merged_kept = counts == "the merged one" or not has_ledger
    assert (merged.name in aside(wreck.collection)) == (not is_merged_kept)
    assert {each.name for each in parts} <= aside(wreck.collection) or not is_merged_kept
    assert mend(wreck.collection).findings == ()


@pytest.mark.parametrize("has_ledger", [True, False])
def test_damaged_merge_is_completed_from_its_parts(tmp_path: Path, has_ledger: bool) -> None:
    wreck = Wreck(tmp_path / "c")
    for number in range(BATCHES):
        wreck.put([wrecks.page(PAGES * number + each) for each in range(PAGES)])
    parts = [each for each in wreck.ledger.segments() if each.table == "page"][:2]
    merged = wreck.segments.merge(parts)
    wreck.ledger.replace_segments(parts, merged, now=NOW)  # the parts are removed two minutes later
    wreck.close()
    halve(wreck.segments.path(merged.name))
    if not has_ledger:
        wreck.collection.ledger_path.unlink()
    made = mend(wreck.collection)
    assert urls(wreck.collection) == ALL
    assert made.pages_again == 0
    assert mend(wreck.collection).findings == ()


def test_segments_of_earlier_releases_make_a_ledger_too(collection: CollectionFolder) -> None:
    """They have no label; the oldest have no batches either, and their rows are compared."""
    for path in sorted(collection.segments_folder.iterdir()):
        rows = pq.read_table(path)
        old = rows.drop_columns([name for name in ("batch", "again") if name in rows.column_names])
        pq.write_table(old.replace_schema_metadata(None), path)
        shutil.copy(path, path.with_name(f"f{path.name}"))  # as a merge of one that was not cleaned up
    collection.ledger_path.unlink()
    made = mend(collection)
    assert urls(collection) == ALL
    assert waiting(collection) == LEFT
    assert len(aside(collection)) == len(list(collection.segments_folder.iterdir()))
    assert sum(finding.part == "segment" for finding in made.findings) == len(aside(collection))
    assert mend(collection).findings == ()


def test_batch_that_lost_its_links_with_the_ledger_is_fetched_again(collection: CollectionFolder) -> None:
    segment(collection, "link").unlink()
    collection.ledger_path.unlink()
    assert mend(collection).pages_again == PAGES
    assert waiting(collection) == LEFT - LEFT | batch(BATCHES)


# --- WARC files


def records(collection: CollectionFolder) -> Iterator[str]:
    for path in collection.warc_folder.iterdir():
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type == "response":
                    yield record.rec_headers["WARC-Target-URI"]


WARCS: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-700]), {f"{SITE}/19"}),
    "flipped": (lambda path: flip(path, path.stat().st_size // 2), set()),
    "missing": (Path.unlink, set(ALL)),
    "0 bytes": (lambda path: path.write_bytes(b""), set(ALL)),
}


@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize("damage", WARCS)
def test_damaged_warc_file_keeps_its_good_records(
    collection: CollectionFolder, damage: str, has_ledger: bool
) -> None:
    (path,) = collection.warc_folder.iterdir()
    break_it, lost = WARCS[damage]
    break_it(path)
    if not has_ledger:
        collection.ledger_path.unlink()
    made = mend(collection)
    assert "warc" in {finding.part for finding in made.findings} or (damage == "missing" and not has_ledger)
    kept = set(records(collection))
    assert len(kept) >= len(ALL) - max(len(lost), 1)
    assert (not lost) or kept == set(ALL) - lost
    raw = wrecks.known(collection, "SELECT url FROM page WHERE has_raw")
    assert {SITE + url for (url,) in raw} == kept
    assert urls(collection) == ALL
    assert any(name.startswith(path.name) for name in aside(collection)) or damage == "missing"
    with collection.open_ledger() as ledger:
        sizes = {each.name: each.committed_bytes for each in ledger.warc_positions()}
    assert sizes == {each.name: each.stat().st_size for each in collection.warc_folder.iterdir()}
    assert mend(collection).findings == ()


# --- the folder


@pytest.mark.parametrize("damage", ["missing", "damaged", "of another collection"])
def test_marker_is_made_anew_with_the_id_that_everything_else_names(
    collection: CollectionFolder, damage: str
) -> None:
    before, marker = collection.id(), collection.folder / MARKER
    if damage == "missing":
        marker.unlink()
    else:
        marker.write_text("{" if damage == "damaged" else '{"sterna_collection": 1, "id": "x", "made": 1.0}')
    assert mend(collection).findings[0].part == "collection"
    assert collection.id() == before
    assert urls(collection) == ALL
    assert mend(collection).findings == ()


def test_what_is_no_part_of_a_collection_is_set_aside(collection: CollectionFolder) -> None:
    (collection.segments_folder / "folder").mkdir()
    (collection.segments_folder / "notes.txt").write_text("mine")
    (collection.segments_folder / "0.page.parquet.tmp").write_bytes(b"half")
    (collection.warc_folder / "other.warc.gz").write_bytes(b"x")
    (collection.folder / "readme.txt").write_text("beside the parts, nobody minds it")
    made = mend(collection)
    strays = {"folder", "notes.txt", "0.page.parquet.tmp", "other.warc.gz"}
    assert {finding.name for finding in made.findings} == aside(collection) == strays
    assert (collection.folder / "readme.txt").exists()
    assert mend(collection).findings == ()


def test_dry_run_tells_the_same_and_changes_nothing(collection: CollectionFolder) -> None:
    halve(segment(collection, "page"))
    flip(collection.ledger_path, 10)
    (collection.segments_folder / "notes.txt").write_text("mine")
    before = wrecks.files(collection)
    told = mend(collection, is_dry_run=True)
    assert wrecks.files(collection) == before
    assert len(told.findings) == 3
    assert told.findings == mend(collection).findings


def test_everything_damaged_at_once(collection: CollectionFolder) -> None:
    collection.ledger_path.unlink()
    (collection.folder / MARKER).unlink()
    flip(segment_path := next(collection.segments_folder.glob("*.page.parquet")), 300)
    (path,) = collection.warc_folder.iterdir()
    halve(path)
    mend(collection)
    assert set(urls(collection)) < set(ALL)
    assert set(urls(collection)) | waiting(collection) >= set(ALL)
    assert segment_path.name in aside(collection)
    assert mend(collection).findings == ()


def test_folder_that_is_no_collection_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(NotACollection):
        mend(CollectionFolder(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(NotACollection):
        mend(CollectionFolder(tmp_path / "nowhere"))


def test_repair_beside_a_crawl_is_refused(collection: CollectionFolder) -> None:
    with collection.open_for_crawl(), pytest.raises(CollectionInUse):
        mend(collection)
