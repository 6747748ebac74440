"""A damaged segment costs its own rows: queries answer from the others, and say which file they left out."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive.manifest import Batch
from sterna.archive.segments import SegmentStore
from sterna.errors import DamagedSegment, QueryError
from sterna.model import Link, Links
from sterna.query.engine import Engine


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[Path]]:
    """Two batches of ten pages with a link each."""
    store = SegmentStore(tmp_path / "segments")
    found: dict[str, list[Path]] = {}
    for number in (1, 2):
        pages = [
            making.page(
                f"/{number}/{each}", text=f"{number * each} " * 2_000, links=Links.of(Link(f"{making.SITE}/"))
            )
            for each in range(10)
        ]
        batch = Batch(number=number, crawler="c", visits=("v",) * 10, again=(False,) * 10)
        for segment in store.write_pages([(making.SITE, page) for page in pages], batch=batch):
            found.setdefault(segment.table, []).append(store.path(segment.name))
    return found


def zero_text(path: Path) -> None:
    """Zeros where a column of compressed texts was: only reading it shows it."""
    place = next(
        at for at in range(20) if pq.read_metadata(path).row_group(0).column(at).path_in_schema == "text"
    )
    chunk = pq.read_metadata(path).row_group(0).column(place)
    data = bytearray(path.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size
    data[end - 60 : end] = bytes(60)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def break_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8 - length + 60] = bytes(60)
    path.write_bytes(data)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "0 bytes": lambda path: path.write_bytes(b""),
    "cut": cut,
    "broken footer": break_footer,
    "broken rows": zero_text,
}


@pytest.mark.parametrize("kind", KINDS)
def test_queries_answer_from_the_good_segments(files: dict[str, list[Path]], kind: str) -> None:
    bad = files["page"][0]
    KINDS[kind](bad)
    told: list[str] = []
    with Engine(files, warn=told.append) as engine:
        assert list(engine.run("SELECT count(text), count(DISTINCT url) FROM page").rows) == [(10, 10)]
        assert sum(rows.num_rows for rows in engine.run_arrow("SELECT * FROM page").batches) == 10
        assert list(engine.run("SELECT count(*) FROM link").rows) == [(20,)]
    assert len(told) == 1
    assert str(bad) in told[0]
    assert f"run 'sterna repair {bad.parent.parent}'" in told[0]


@pytest.mark.parametrize("kind", ["cut", "broken rows"])
def test_who_cannot_warn_gets_no_answer_from_a_part(files: dict[str, list[Path]], kind: str) -> None:
    bad = files["page"][0]
    KINDS[kind](bad)
    with Engine(files) as engine, pytest.raises(DamagedSegment) as caught:
        engine.run("SELECT text FROM page")
    assert caught.value.path == bad


def test_mistake_in_a_query_is_not_taken_for_damage(files: dict[str, list[Path]]) -> None:
    told: list[str] = []
    with Engine(files, warn=told.append) as engine, pytest.raises(QueryError, match="Could not convert"):
        engine.run("SELECT url::INTEGER FROM page WHERE text <> 'parquet'")
    assert told == []


def test_damage_found_after_the_first_rows_is_an_error_that_names_the_file(
    files: dict[str, list[Path]],
) -> None:
    told: list[str] = []
    with Engine(files, warn=told.append) as engine:
        result = engine.run("SELECT i FROM range(1000000) AS t(i)")
        next(result.rows)
        work = next(iter(engine._works))
        zero_text(files["page"][1])
        failing = engine._stream(work, [(1,)], lambda: [duckdb_error()])
        assert next(failing) == (1,)
        with pytest.raises(DamagedSegment, match=files["page"][1].name):
            next(failing)


def test_segment_that_a_merge_removed_is_not_left_out_of_the_answer(files: dict[str, list[Path]]) -> None:
    told: list[str] = []
    with Engine(files, warn=told.append) as engine:
        assert list(engine.run("SELECT count(*) FROM page").rows) == [(20,)]
        files["page"][0].unlink()
        with pytest.raises(QueryError, match="merged segments that this query reads: run it again"):
            list(engine.run("SELECT count(text) FROM page").rows)
    assert told == []


def duckdb_error() -> tuple[int]:
    raise duckdb.IOException("ZSTD Decompression failure")
