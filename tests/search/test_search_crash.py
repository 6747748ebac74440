"""kill -9 at any moment: the index holds exactly the batches that it says, and no page twice."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.killing import kill, warm
from tests.search.shelf import Shelf, held_in, newest_good, page

from sterna.search.indexer import Indexer

KILLS = 6
BATCHES = 60


def fill(shelf: Shelf) -> None:
    """Pages that come, change, go and come again."""
    chance = random.Random(7)
    known: set[str] = set()
    for batch in range(BATCHES):
        rows = []
        for _ in range(30):
            path = f"p{chance.randrange(600)}"
            fate = chance.random()
            fields: dict[str, Any] = {"again": path in known}
            known.add(path)
            if fate < 0.1:
                rows.append(page(path, status=404, digest=None, **fields))
            elif fate < 0.15:
                rows.append(page(path, status=500, digest=None, **fields))
            else:
                words = " ".join(f"w{chance.randrange(5000)}" for _ in range(200))
                rows.append(page(path, f"{batch} {words}", title=f"Page {path}", **fields))
        shelf.add(rows)


@pytest.mark.timeout(120)
def test_killed_at_random_it_neither_loses_nor_doubles(shelf: Shelf) -> None:
    fill(shelf)
    paths = shelf.snapshot().tables["page"]
    chance = random.Random(11)
    positions = []
    with warm("tests.search.dying") as parent:
        for _ in range(KILLS):
            child = parent.start(shelf.folder.parent)
            for _ in range(chance.randrange(1, 9)):
                parent.wait_for_report(child)
            time.sleep(chance.random() * 0.05)
            kill(child)
            with Indexer(shelf.index_folder) as indexer:
                positions.append(indexer.batch)
            assert held_in(shelf.index_folder) == newest_good(paths[: max(positions[-1], 0)])
    assert positions == sorted(positions)
    assert KILLS <= positions[-1] < BATCHES
    shelf.index()
    assert shelf.held() == shelf.expected()
    assert len(shelf.held()) > 300


def test_page_that_is_the_first_to_change_after_a_start_is_there_once(tmp_path: Path) -> None:
    # A writer that is opened begins to merge, and so lost its first deletion in every second case.
    for number in range(5):
        shelf = Shelf(tmp_path / str(number))
        with Indexer(shelf.index_folder) as indexer:
            for batch in range(8):
                pages = [page(f"{batch}-{place}", "words " * 50) for place in range(30)]
                gone = range(0, 7, 2) if batch == 7 else ()
                shelf.add(
                    [*pages, *(page(f"{each}-2", status=404, digest=None, again=True) for each in gone)]
                )
                indexer.catch_up(shelf.snapshot(), stop=threading.Event())
                indexer.commit()
        shelf.add([page("2-7", "new words", again=True)])
        shelf.index()
        assert shelf.held() == shelf.expected()


def test_killed_while_it_is_made_anew_the_old_one_stays(shelf: Shelf) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    with Indexer(shelf.index_folder, is_anew=True):
        pass  # not published: as if it had been killed
    assert shelf.found("whales") == ["a"]
    left = [entry.name for entry in shelf.index_folder.iterdir() if entry.is_dir()]
    assert len(left) == 2
    shelf.index()
    assert len([entry for entry in shelf.index_folder.iterdir() if entry.is_dir()]) == 1
