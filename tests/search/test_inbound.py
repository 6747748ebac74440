"""How many pages link to each page."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.search.shelf import SITE, Shelf, page

from sterna.archive.manifest import Snapshot
from sterna.search.documents import mark_of
from sterna.search.inbound import Inbound
from sterna.search.link_count import LinkCount, write_counts
from sterna.toml import stamp


def count(shelf: Shelf, snapshot: Snapshot | None = None) -> dict[str, int]:
    shelf.index_folder.mkdir(exist_ok=True)
    counting = LinkCount(shelf.index_folder)
    until = time.monotonic() + 60
    assert counting.go_on(snapshot or shelf.snapshot(), stop=threading.Event(), until=until)
    return counts(shelf)


def counts(shelf: Shelf) -> dict[str, int]:
    inbound = Inbound(shelf.index_folder)
    found = {path: inbound.of(mark_of(f"{SITE}/{path}")) for path in "abcdef"}
    return {path: number for path, number in found.items() if number}


def links(*pairs: str) -> list[tuple[str, str]]:
    return [(f"{SITE}/{pair[0]}", f"{SITE}/{pair[1]}") for pair in pairs]


def test_each_page_counts_once_and_not_for_itself(shelf: Shelf) -> None:
    shelf.add([page(path) for path in "abc"], links("ab", "ab", "aa", "cb", "ac"))
    shelf.add([page("d")], links("db", "dc"))
    assert count(shelf) == {"b": 3, "c": 2}


def test_only_links_of_the_newest_version_count(shelf: Shelf) -> None:
    shelf.add([page("a"), page("b")], links("ac", "ad", "bd"))
    shelf.add([page("a", again=True)], links("ad", "ae"))
    assert count(shelf) == {"d": 2, "e": 1}
    shelf.add([page("a", again=True, status=404, digest=None)])
    assert count(shelf) == {"d": 1}


def test_links_from_before_batches_count(shelf: Shelf) -> None:
    shelf.add([page("a", again=None)], links("ab", "ac"), batch=None)
    shelf.add([page("a", again=None)], links("ab"), batch=None)
    assert count(shelf) == {"b": 1}


def test_it_goes_on_where_it_stopped(shelf: Shelf) -> None:
    for path in "abcd":
        shelf.add([page(path)], links(f"{path}e", f"{path}f"))
    shelf.index_folder.mkdir()
    counting = LinkCount(shelf.index_folder)
    for _ in range(30):
        if counting.go_on(shelf.snapshot(), stop=threading.Event(), until=0.0):
            break
    assert counts(shelf) == {"e": 4, "f": 4}
    assert counting.batch == 4


def test_a_crawl_without_links_has_no_counts(shelf: Shelf) -> None:
    shelf.add([page("a")])
    assert count(shelf) == {}


@pytest.mark.parametrize("damage", [b"", b"x", b"sterna-inbound-1", b"\xff" * 1000], ids=len)
def test_a_damaged_file_counts_nothing(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "inbound").write_bytes(damage)
    assert Inbound(tmp_path).of(5) == 0
    assert Inbound(tmp_path).batch == -1


def test_a_file_that_is_cut_counts_nothing(tmp_path: Path) -> None:
    table = pa.table({"number": pa.array([5, 9], pa.uint64()), "count": pa.array([3, 2**40], pa.int64())})
    write_counts(tmp_path, table, batch=7)
    inbound = Inbound(tmp_path)
    assert [inbound.of(number) for number in (4, 5, 6, 9, 2**64 - 1)] == [0, 3, 0, 2**32 - 1, 0]
    assert inbound.batch == 7
    path = tmp_path / "inbound"
    before = stamp(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert Inbound(tmp_path).of(5) == 0
    assert stamp(path) != before
