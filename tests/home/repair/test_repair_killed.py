"""A repair that is killed at any of its steps is finished by the next one, with the same result."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.home.repair import wrecks
from tests.home.repair.wrecks import flip, mend, segment
from tests.killing import Parent, kill, warm

from sterna.home.folder import MARKER, CollectionFolder


def damage_a_segment(collection: CollectionFolder) -> None:
    """Half of its rows can be saved."""
    path = segment(collection, "page", 0)
    rows = pq.read_table(path)
    with pq.ParquetWriter(path, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(rows, row_group_size=5)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    flip(path, (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 4)


def damage_everything(collection: CollectionFolder) -> None:
    damage_a_segment(collection)
    flip(next(collection.warc_folder.iterdir()), 3_000)
    (collection.segments_folder / "notes.txt").write_text("mine")
    (collection.folder / MARKER).write_text("{")
    flip(collection.ledger_path, 4096 * 5, length=4096)


def state(collection: CollectionFolder) -> dict[str, Any]:
    """What counts in the end, whatever the names of files are."""
    tables = {table: sorted(wrecks.rows(collection, table)) for table in ("page", "link", "fact")}
    with collection.open_ledger() as ledger:
        sizes = [each.committed_bytes for each in ledger.warc_positions()]
        named = {each.name for each in ledger.segments()}
    assert {path.name for path in collection.segments_folder.iterdir()} == named
    assert sizes == [path.stat().st_size for path in collection.warc_folder.iterdir()]
    left = [
        path.name for path in collection.folder.iterdir() if ".new" in path.name or "rebuild" in path.name
    ]
    assert left == []
    return {**tables, "id": collection.id(), "waiting": wrecks.waiting(collection), "warc": sizes}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CollectionFolder:
    return wrecks.make(tmp_path_factory.mktemp("whole") / "c")


@pytest.fixture
def parent() -> Iterator[Parent]:
    with warm("tests.home.repair.dying") as running:
        yield running


@pytest.mark.parametrize("damage", [damage_a_segment, damage_everything])
def test_killed_at_each_step_the_next_repair_comes_to_the_same_end(
    whole: CollectionFolder, tmp_path: Path, parent: Parent, damage: Callable[[CollectionFolder], None]
) -> None:
    damaged = wrecks.copy(whole, tmp_path / "damaged")
    damage(damaged)
    steps: list[str] = []
    undisturbed = wrecks.copy(damaged, tmp_path / "undisturbed")
    mend(undisturbed, on_step=steps.append)
    assert {"segment-renamed", "ledger-built", "ledger-exchanged", "set-aside"} <= set(steps)
    for number, step in enumerate(steps, start=1):
        collection = wrecks.copy(damaged, tmp_path / f"{number}")
        (tmp_path / "die").write_text(f"{number} {number}")
        child = parent.start(tmp_path)
        parent.wait_for_report(child)
        with suppress(ProcessLookupError):
            kill(child)
        assert mend(collection).findings or number == len(steps)
        assert state(collection) == state(undisturbed), f"killed at {step}, the {number}th step"
        assert mend(collection).findings == ()
