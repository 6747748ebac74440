"""The folder of a crawl."""

from pathlib import Path

import pytest

from sterna.errors import CollectionError, CollectionInUse, NotACollection, StorageError
from sterna.home.folder import MARKER, CollectionFolder


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
