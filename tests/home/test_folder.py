"""The folder of a crawl."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from sterna.archive.disk import replace_file
from sterna.errors import CollectionError, CollectionInUse, LedgerLost, NotACollection, StorageError
from sterna.home.folder import MARKER, CollectionFolder
from sterna.search.generations import writing

NOBODY = 65534


def test_new_folder_becomes_a_collection(tmp_path: Path) -> None:
    collection = CollectionFolder(tmp_path / "deep" / "new")
    with collection.open_for_crawl():
        collection.check()
    assert collection.segments_folder.is_dir()


def test_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with (
        pytest.raises(NotACollection, match="holds other files"),
        CollectionFolder(tmp_path).open_for_crawl(),
    ):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_file_is_no_collection(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(NotACollection), CollectionFolder(path).open_for_crawl():
        pass


def test_second_crawl_is_kept_out(tmp_path: Path) -> None:
    collection = CollectionFolder(tmp_path / "c")
    refusal = pytest.raises(CollectionInUse, match="in use by another crawl")
    with collection.open_for_crawl(), refusal, collection.open_for_crawl():
        pass
    with collection.open_for_crawl():
        pass


def files_of(folder: Path) -> list[Path]:
    """All files but those by which SQLite reads the ledger."""
    return sorted(path for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal")))


@pytest.mark.parametrize("ledger", ["missing", "0 bytes", "without tables"])
def test_archive_without_a_ledger_is_neither_crawled_nor_read(tmp_path: Path, ledger: str) -> None:
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        pass
    (collection.segments_folder / "0.page.parquet").write_bytes(b"rows")
    if ledger == "0 bytes":
        collection.ledger_path.touch()
    elif ledger == "without tables":
        with sqlite3.connect(collection.ledger_path) as db:
            db.execute("PRAGMA journal_mode = WAL")
    before = files_of(tmp_path)
    words = rf"ledger is (missing|empty).*nothing was changed: run 'sterna repair {collection.folder}'"
    with pytest.raises(LedgerLost, match=words), collection.open_for_crawl():
        pass
    with pytest.raises(LedgerLost, match=words):
        collection.snapshot()
    assert files_of(tmp_path) == before


def test_ledger_of_another_collection_is_refused(tmp_path: Path) -> None:
    one, other = (CollectionFolder(tmp_path / name) for name in "ab")
    for each in (one, other):
        with each.open_for_crawl(), each.open_ledger(is_reader=False) as ledger:
            each.claim(ledger)
            each.claim(ledger)
    shutil.copy(other.ledger_path, one.ledger_path)
    with (
        one.open_ledger(is_reader=False) as ledger,
        pytest.raises(LedgerLost, match="belongs to another collection"),
    ):
        one.claim(ledger)


def test_collection_that_lost_its_marker_is_told_from_other_folders(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments/0.page.parquet").write_bytes(b"rows")
    refusal = pytest.raises(NotACollection, match=r"has lost its file collection\.json: run 'sterna repair")
    with refusal, CollectionFolder(tmp_path).open_for_crawl():
        pass
    with refusal:
        CollectionFolder(tmp_path).check()


def test_folder_without_a_marker_is_not_a_collection(tmp_path: Path) -> None:
    with pytest.raises(NotACollection, match="is not a collection"):
        CollectionFolder(tmp_path).check()


def test_damaged_marker_and_foreign_format_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("{")
    with pytest.raises(NotACollection, match="cannot read"):
        CollectionFolder(tmp_path).check()
    (tmp_path / MARKER).write_text('{"sterna_collection": 7, "id": "x", "made": 1}')
    with pytest.raises(CollectionError, match="format 7"):
        CollectionFolder(tmp_path).check()


def test_folder_that_is_not_creatable_is_a_storage_error() -> None:
    with (
        pytest.raises(StorageError, match="cannot create"),
        CollectionFolder(Path("/proc/nowhere")).open_for_crawl(),
    ):
        pass


def test_collection_has_an_id_of_its_own_that_stays(tmp_path: Path) -> None:
    one, other = CollectionFolder(tmp_path / "a"), CollectionFolder(tmp_path / "b")
    for each in (one, other):
        with each.open_for_crawl():
            pass
    before = one.id()
    assert before != other.id()
    (tmp_path / "a").rename(tmp_path / "c")
    assert CollectionFolder(tmp_path / "c").id() == before
    with pytest.raises(NotACollection):
        one.id()


def test_storage_rules_may_be_there_before_the_first_crawl(tmp_path: Path) -> None:
    (tmp_path / "storage.toml").touch()
    with CollectionFolder(tmp_path).open_for_crawl():
        CollectionFolder(tmp_path).check()


# -- folders of others -------------------------------------------------------------------------------------


# Every name under which a collection writes, below its folder.
WRITTEN = [
    "lock",
    "collection.json",
    "collection.json.tmp",
    "ledger.sqlite",
    "ledger.sqlite-wal",
    "ledger.sqlite-shm",
    "ledger.sqlite.new",
    "ledger.sqlite.rebuilding",
    "storage.toml",
    "storage.toml.tmp",
    "storage.status.json",
    "segments",
    "segments/0.page.parquet.tmp",
    "warc",
    "warc/x.warc.gz.open",
    "warc/x.warc.gz.tmp",
    "waiting",
    "waiting/visit",
    "aside",
    "index",
    "index/lock",
    "index/current",
    "index/current.tmp",
    "index/inbound.tmp",
    "index/1-0123456789abcdef",
    "index/1-0123456789abcdef/meta.json",
]
FOLDERS = {"segments", "warc", "waiting", "aside", "index", "index/1-0123456789abcdef"}


def contents_of(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "folder" if name in FOLDERS else "file") for name in WRITTEN),
        ("lock", "nothing"),
        ("index", "nothing"),
        ("segments", "nothing"),
    ],
)
def test_link_in_a_foreign_collection_is_refused_and_nothing_behind_it_changes(
    tmp_path: Path, name: str, target: str
) -> None:
    collection, mine = CollectionFolder(tmp_path / "foreign"), tmp_path / "mine"
    (mine / "folder").mkdir(parents=True)
    (mine / "folder/key").write_text("secret")
    (mine / "file").write_text("secret")
    with collection.open_for_crawl(), collection.open_ledger(is_reader=False):
        pass
    link = collection.folder / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(mine / target)
    before = contents_of(mine)
    refusal = pytest.raises(CollectionError, match=f"{link} is a symbolic link.*or remove it")
    with refusal, collection.open_for_crawl():
        pass
    with refusal, collection.locked():  # as repair does
        pass
    if name.startswith("index"):
        with refusal, writing(collection.index_folder):
            pass
    if name.startswith("ledger.sqlite") and name.endswith(("sqlite", "-wal", "-shm")):
        with refusal, collection.open_ledger():  # SQLite writes files for readers too
            pass
    assert contents_of(mine) == before


def test_pipe_in_a_foreign_collection_is_refused(tmp_path: Path) -> None:
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        pass
    os.mkfifo(collection.warc_folder / "x.warc.gz.open")
    with pytest.raises(CollectionError, match="is a special file"), collection.open_for_crawl():
        pass


def test_link_before_the_first_crawl_is_refused(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "c"
    victim.write_text("mine")
    folder.mkdir()
    (folder / "collection.json.tmp").symlink_to(victim)
    with pytest.raises(CollectionError, match="symbolic link"), CollectionFolder(folder).open_for_crawl():
        pass
    assert victim.read_text() == "mine"


def test_folder_of_a_collection_may_itself_be_a_link_and_hold_links_that_are_not_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "big")
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        pass
    for name in ("aside", "notes"):  # what was set aside, and what the user keeps beside it
        (collection.folder / name).mkdir()
        (collection.folder / name / "link").symlink_to(tmp_path)
    with collection.open_for_crawl():
        assert (tmp_path / "big" / MARKER).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folder_of_another_user_where_everybody_can_write_is_refused(tmp_path: Path) -> None:
    around, collection = tmp_path / "tmp", CollectionFolder(tmp_path / "tmp/foreign/c")
    with collection.open_for_crawl():
        pass
    os.chown(around / "foreign", NOBODY, NOBODY)
    with collection.open_for_crawl():
        pass  # nobody else can write into the folder around it
    around.chmod(0o1777)
    refusal = pytest.raises(CollectionError, match=r"foreign belongs to another user.*name another folder")
    with refusal, collection.open_for_crawl():
        pass


@pytest.mark.parametrize("is_link", [True, False])
def test_temporary_file_is_never_written_through_what_lies_there(tmp_path: Path, is_link: bool) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("mine")
    begun = tmp_path / "file.tmp"
    if is_link:
        begun.symlink_to(victim)
    else:
        begun.hardlink_to(victim)
    replace_file(path, b"ours")
    assert (path.read_bytes(), victim.read_text(), path.is_symlink()) == (b"ours", "mine", False)


# -- permissions -------------------------------------------------------------------------------------------


def test_new_collection_is_private_and_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o750)
    modes = {}
    for folder in (tmp_path / "deep/new", given):
        with CollectionFolder(folder).open_for_crawl():
            modes[folder.name] = folder.stat().st_mode & 0o777
    assert modes == {"new": 0o700, "given": 0o750}
    (tmp_path / "deep/new").chmod(0o755)
    with CollectionFolder(tmp_path / "deep/new").open_for_crawl():
        assert (tmp_path / "deep/new").stat().st_mode & 0o777 == 0o755
