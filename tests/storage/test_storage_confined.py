"""What a rule gets of a confined process that lies about its query."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.archive.frames import frames_of, packed
from sterna.archive.manifest import Snapshot
from sterna.errors import StorageError
from sterna.query.values import packed_rows
from sterna.storage.config import RuleSpec, StoreSpec
from sterna.storage.confined import read_chunks

RULE = RuleSpec(store=(StoreSpec(query="SELECT url, title FROM page", commands=("add",)),))
SNAPSHOT = Snapshot(tables={"page": (Path("/c/1.page.parquet"),)}, batch=5)
COLUMNS = ["url", "title"]
(TABLE,) = frames_of([pa.table({"url": ["a"], "title": ["b"]})])
(NARROW,) = frames_of([pa.table({"url": ["a"]})])
(LISTS,) = frames_of([pa.table({"url": ["a"], "title": [["b"]]})])


class Lying:
    def __init__(self, *says: object) -> None:
        self._says = says

    def stream(self, work: str, request: bytes) -> Iterator[bytes]:
        assert work.endswith(":chunk_frames")
        yield packed(self._says)


def rows_of(*says: object) -> list[Any]:
    confined: Any = Lying(*says)
    (chunk,) = read_chunks(confined, RULE, [0], snapshot=SNAPSHOT, after=2, upto=5)
    return list(chunk.rows)


def test_rows_come_in_columns_or_one_by_one() -> None:
    assert rows_of(0, 5, COLUMNS, TABLE, b"") == [("a", "b")]
    assert rows_of(0, 3, COLUMNS, b"", packed_rows([("a", "b"), (None, 1)])) == [("a", "b"), (None, 1)]


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ((1, 5, COLUMNS, TABLE, b""), "sent step 1 of a rule"),
        ((0, 2, COLUMNS, TABLE, b""), "sent batch 2, asked for those from 3 to 5"),
        ((0, 2**62, COLUMNS, TABLE, b""), "asked for those from 3 to 5"),
        ((0, 5, COLUMNS, NARROW, b""), "sent columns"),
        ((0, 5, COLUMNS, LISTS, b""), "of other types"),
        ((0, 5, COLUMNS, b"", packed_rows([("a",)])), "sent rows of other columns"),
        ((0, 5, COLUMNS, b"", packed_rows([("a", "b", "c")])), "sent rows of other columns"),
        ((0, 5, COLUMNS, b"", b"\x92\x92\xa1a\xa1b\x91\xa1a"), "sent rows of other columns"),
        ((0, 5, COLUMNS, b"", b"\xff"), "malformed rows"),
    ],
    ids=["step", "batch", "late batch", "table", "types", "too few", "too many", "some", "nonsense"],
)
def test_chunk_that_is_not_what_was_asked_is_refused(says: tuple[object, ...], said: str) -> None:
    with pytest.raises(StorageError, match=said):
        rows_of(*says)
