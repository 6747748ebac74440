"""A collection read from Python: another process parses it, and the program that asked stays as it is."""

import copy
import gc
import io
import logging
import os
import pickle
import shutil
import subprocess
import sys
from itertools import islice
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, segment_paths
from tests.servers.pages import PageServer, linking

from sterna import Collection, Collections
from sterna.api import confined
from sterna.archive.frames import packed
from sterna.errors import QueryError, StorageError, UsageError
from sterna.runtime.cell.confined import Confined

A = "127.0.5.9"


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confined-api") / "c"
    pages = {"/": linking("/1", title="Start"), "/1": "<title>One</title><p>A tern flies."}
    with PageServer({A: pages}).run_in_thread() as server:
        crawl_here(folder, server.url(A), warc=True)
    return folder


@pytest.fixture
def folder(crawled: Path, tmp_path: Path) -> Path:
    """A collection of the test's own."""
    return Path(shutil.copytree(crawled, tmp_path / "c"))


def children() -> set[int]:
    """The confined processes of this one."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            if b"sterna.runtime.cell.confined_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(int(pid))
    return found


def test_program_that_asks_parses_nothing_and_keeps_its_rights(folder: Path) -> None:
    program = f"""
import sys, sterna
collection = sterna.Collection({str(folder)!r})
(row,) = collection.query("SELECT count(*) AS n FROM page")
assert row == {{"n": 2}}, row
assert collection.search("tern").total == 1
assert collection.status().counts.pages == 2
assert collection.export("jsonl", {str(folder.parent / "rows.jsonl")!r}).count == 2
status = open("/proc/self/status").read()
assert "NoNewPrivs:\\t0" in status and "Seccomp:\\t0" in status, status
print([name for name in ("duckdb", "tantivy", "fastwarc") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_processes_are_kept_and_end_with_the_collection(folder: Path) -> None:
    before = children()
    collection = Collection(folder)
    for _ in range(3):
        collection.query("SELECT url FROM page").arrow()
    collection.status()
    assert len(children() - before) == 1
    del collection
    gc.collect()
    assert children() - before == set()


def test_answer_that_nobody_reads_ends_its_query(folder: Path) -> None:
    before = children()
    collection = Collection(folder)
    answer = collection.query("SELECT * FROM range(1_000_000_000)")
    assert len(children() - before) == 1
    answer.close()
    assert children() - before == set()
    answer = collection.query("SELECT * FROM range(1_000_000_000)")
    next(answer.rows())
    del answer
    gc.collect()
    assert children() - before == set()


def test_small_answers_hold_no_process_until_somebody_reads_them(folder: Path) -> None:
    before = children()
    collection = Collection(folder)
    answers = [collection.query(f"SELECT {number} AS n FROM page") for number in range(4)]
    answers.append(collection.query("SELECT range AS n FROM range(10_000)"))
    assert len(children() - before) == 1  # it waits for the next query
    collection._confined.close()
    assert children() - before == set()
    assert [len(answer.arrow()) for answer in answers] == [2, 2, 2, 2, 10_000]


def test_two_answers_are_read_side_by_side(folder: Path) -> None:
    collection = Collection(folder)
    before = children()
    left, right = (collection.query("SELECT range AS n FROM range(1_000_000)") for _ in range(2))
    assert len(children() - before) == 2
    assert all(islice(map(eq, left, right), 600_000))


def test_damaged_segment_is_left_out_and_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = Path(segment_paths(folder, "link")[0])
    path.write_bytes(path.read_bytes()[:-10])
    with caplog.at_level(logging.WARNING):
        assert list(Collection(folder).query("SELECT * FROM link")) == []
    assert path.name in caplog.text
    assert "sterna repair" in caplog.text


def test_query_of_several_has_their_names(folder: Path, crawled: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(crawled, tmp_path / "other"))
    both = Collections(folder, other)
    rows = both.query("SELECT collection, count(*) AS n FROM page_history GROUP BY 1 ORDER BY 1")
    assert list(rows) == [{"collection": "c", "n": 2}, {"collection": "other", "n": 2}]
    assert {hit.collection for hit in both.search("tern").hits} <= {"c", "other"}
    alone = Collections(folder).query("SELECT DISTINCT collection FROM page")
    assert list(alone) == [{"collection": "c"}]


def test_parameters_of_an_unknown_type_are_refused_by_name(folder: Path) -> None:
    collection = Collection(folder)
    with pytest.raises(QueryError, match="parameters: values of object are not taken"):
        collection.query("SELECT $x", {"x": object()})


def test_relative_folder_stays_the_one_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    collection = Collection("c")
    monkeypatch.chdir("/")
    assert str(collection.folder) == "c"
    assert len(list(collection.query("SELECT url FROM page"))) == 2


def test_copies_and_pickles_read_by_processes_of_their_own(folder: Path) -> None:
    collection = Collection(folder)
    assert list(collection.query("SELECT count(*) AS n FROM page")) == [{"n": 2}]
    for other in (copy.deepcopy(collection), pickle.loads(pickle.dumps(collection))):
        assert list(other.query("SELECT count(*) AS n FROM page")) == [{"n": 2}]


def test_collection_that_was_moved_and_put_back_is_read(folder: Path, crawled: Path) -> None:
    collection = Collection(folder)
    assert collection.status().counts.pages == 2
    folder.rename(folder.with_name("moved"))
    shutil.copytree(crawled, folder)
    assert collection.status().counts.pages == 2


def test_odd_arguments_get_an_error_of_ours(folder: Path) -> None:
    collection = Collection(folder)
    for parameters in ([1], {"x": "\ud800"}):
        with pytest.raises(QueryError, match="parameters: "):
            collection.query("SELECT 1", parameters)  # type: ignore[arg-type]
    assert list(collection.query("SELECT 1 AS one", memory_bytes=1e9)) == [{"one": 1}]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("export", ("xml", "x"), "--to xml is invalid: jsonl, parquet, csv, warc, cdxj, wacz, sitemap or "),
        ("export", ("csv", "x.csv", {"table": 5}), "table 5 is invalid: Expected `str`, got `int`"),
        ("export", ("csv", "x.csv", {"where": 5}), "where 5 is invalid"),
        ("export", ("csv", 5), "out 5 is invalid: a path"),
        ("events", ("craeted",), "kind 'craeted' is invalid: created, updated or deleted"),
        ("search", (5,), "words 5 is invalid: Expected `str`, got `int`"),
        ("search", ("\ud800",), "words '\\ud800' is invalid"),
        ("search", ("tern", {"limit": "3"}), "limit '3' is invalid"),
        ("search", ("tern", {"limit": 0}), "limit 0 is invalid"),
        ("search", ("tern", {"offset": -1}), "offset -1 is invalid"),
        ("query", (5,), "sql 5 is invalid"),
        ("query", ("SELECT 1", {"visit": 5}), "visit 5 is invalid"),
        ("query", ("SELECT 1", {"seconds": "long"}), "seconds 'long' is invalid: a number"),
        ("query", ("SELECT 1", {"memory_bytes": None}), "memory_bytes None is invalid: a number"),
    ],
)  # fmt: skip
def test_wrong_values_are_named_before_a_process_is_asked(
    folder: Path, method: str, given: tuple[Any, ...], words: str
) -> None:
    collection, before = Collection(folder), children()
    named = given[-1] if isinstance(given[-1], dict) else {}
    with pytest.raises(UsageError) as error:
        getattr(collection, method)(*given[: len(given) - bool(named)], **named)
    assert str(error.value).startswith(words)
    assert children() == before


# --- exports


def test_export_has_its_place_and_leaves_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "out").mkdir()
    monkeypatch.chdir(folder.parent / "out")
    collection = Collection(folder)
    made = collection.export("csv", "rows.csv", table="link")
    assert made.places == (Path("rows.csv"),)
    assert Path("rows.csv").stat().st_size == made.size_bytes
    for _ in range(2):
        assert collection.export("markdown", "pages", force=True).count == 2
    Path("here").mkdir()
    with monkeypatch.context() as moved:
        moved.chdir("here")
        assert collection.export("markdown", ".").places == (Path(),)
    shutil.rmtree("here")
    with pytest.raises(UsageError, match="column"):
        collection.export("csv", "other.csv", where="no_such_column = 1")
    with pytest.raises(UsageError, match=r"rows\.csv exists"):
        collection.export("csv", "rows.csv")
    assert sorted(path.name for path in Path().iterdir()) == ["pages", "rows.csv"]


def test_export_to_standard_output(folder: Path) -> None:
    program = f"import sterna; sterna.Collection({str(folder)!r}).export('warc', '-')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.startswith(b"\x1f\x8b")


def test_export_needs_no_standard_output_unless_it_goes_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's takes texts only, and a program without a console has none."""
    collection = Collection(folder)
    for number, stdout in enumerate([io.StringIO(), None]):
        monkeypatch.setattr(sys, "stdout", stdout)
        assert collection.export("jsonl", folder.parent / f"{number}.jsonl").count == 2
        with pytest.raises(UsageError, match="standard output takes no bytes here: name a file"):
            collection.export("jsonl", "-")


def test_output_that_belongs_into_a_file_does_not_go_to_standard_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Confined, "stream", lambda *_, **__: iter([packed(confined.Part(data=b"bytes"))]))
    with pytest.raises(
        StorageError, match=r"cannot write .*a\.csv: a confined process sent what belongs there"
    ):
        Collection(folder).export("csv", folder.parent / "a.csv")


def test_export_into_a_pipe(folder: Path) -> None:
    pipe = folder.parent / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert Collection(folder).export("jsonl", pipe).count == 2
        assert reader.stdout
        assert reader.stdout.read().count(b"\n") == 2
