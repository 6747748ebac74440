"""An index that is missing, broken or replaced: one line each, and searches go on."""

import random
import threading
from pathlib import Path

import pytest
from tests.search.shelf import SITE, Shelf, page

from sterna.errors import IndexUnusable, SternaError, StorageError
from sterna.search import generations
from sterna.search.indexer import Indexer
from sterna.search.searcher import LOOK_SECONDS, Searcher


def generation(shelf: Shelf) -> Path:
    found = generations.current(shelf.index_folder)
    assert found is not None
    return found


def put(path: Path, content: bytes) -> None:
    """Another file under the name: who has the old one mapped keeps it."""
    path.unlink()
    path.write_bytes(content)


def test_a_missing_index_names_the_command(shelf: Shelf) -> None:
    with pytest.raises(IndexUnusable, match=r"has no search index yet: run 'sterna index .*'"):
        shelf.search("whales")


@pytest.mark.parametrize("said", [b"", b"../../etc\n", b"\xff\xfe", b"0-00000000\n", b"1-zz\n"], ids=len)
def test_a_wrong_name_is_not_followed(shelf: Shelf, said: bytes) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    (shelf.index_folder / "current").write_bytes(said)
    for attempt in (lambda: shelf.search("whales"), shelf.index):
        with pytest.raises(
            IndexUnusable, match=r"is unusable \(.*\): rebuild it with 'sterna index .* --anew'"
        ):
            attempt()
    shelf.index(is_anew=True)
    assert shelf.found("whales") == ["a"]


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "garbage"])
def test_a_broken_file_is_said_and_mended_by_one_command(shelf: Shelf, how: str) -> None:
    shelf.add([page(f"p{number}", f"whales {number}", title="T") for number in range(30)])
    shelf.index()
    said = 0
    for path in sorted(path for path in generation(shelf).iterdir() if not path.name.startswith(".")):
        good = path.read_bytes()
        if how == "missing":
            path.unlink()
        else:
            put(path, {"empty": b"", "cut": good[: len(good) // 2], "garbage": b"\xa5" * len(good)}[how])
        try:
            assert shelf.search("whales 7").total <= 30  # what is not read need not be whole
        except StorageError as error:
            assert "\n" not in str(error)
            assert "--anew" in str(error)
            said += 1
        path.write_bytes(good)
        assert shelf.found("whales 7")[0] == "p7"
    assert said >= 5
    (generation(shelf) / "meta.json").unlink()
    shelf.index(is_anew=True)
    assert shelf.found("whales 7")[0] == "p7"
    assert shelf.held() == shelf.expected()


def test_random_damage_never_ends_the_process(shelf: Shelf) -> None:
    shelf.add([page(f"p{number}", f"whales {number} and more", title="T") for number in range(50)])
    shelf.index()
    chance = random.Random(3)
    files = [
        path for path in generation(shelf).iterdir() if path.suffix in (".store", ".term", ".idx", ".fast")
    ]
    good = {path: path.read_bytes() for path in files}
    for _ in range(40):
        path = chance.choice(files)
        broken = bytearray(good[path])
        for _ in range(3):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        put(path, bytes(broken))
        try:
            shelf.search("whales and 17")
        except SternaError as error:
            assert "--anew" in str(error)
        put(path, good[path])
    assert shelf.found("whales and 17")[0] == "p17"


def test_searches_go_on_while_it_is_made_anew(shelf: Shelf) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    with Searcher(shelf.index_folder) as searcher:
        assert searcher.page_count() == 1
        old = generation(shelf)
        with Indexer(shelf.index_folder, is_anew=True) as indexer:
            shelf.add([page("b", "whales and terns")])
            indexer.catch_up(shelf.snapshot(), stop=threading.Event())
            indexer.commit()
            assert len(searcher.search("whales").hits) == 1
            indexer.publish()
        assert generation(shelf) != old
        assert not old.exists()
        assert len(searcher.search("whales").hits) in (1, 2)
        threading.Event().wait(LOOK_SECONDS)
        assert {hit.url for hit in searcher.search("whales").hits} == {f"{SITE}/a", f"{SITE}/b"}


def test_a_full_disk_is_no_broken_index(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="the disk is full: free some space") as caught,
        generations.index_errors(tmp_path),
    ):
        raise ValueError("An IO error occurred: 'No space left on device (os error 28)'")
    assert not isinstance(caught.value, IndexUnusable)
