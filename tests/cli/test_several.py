"""Several collections as one, as a user meets it: queried, searched, from the shell and from Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import crawl_here, sterna
from tests.servers.pages import PageServer, linking

import sterna as sterna_package
from sterna.errors import NotACollection, UsageError

A, B = "127.0.6.11", "127.0.6.12"
BIRDS = {"/": linking("/tern", title="Birds"), "/tern": "<title>Arctic tern</title><p>a bird that migrates"}
FISH = {"/": linking("/cod", title="Fish"), "/cod": "<title>Atlantic cod</title><p>a fish that migrates too"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Birds; fish, with a newer version of a page of the birds."""
    top = tmp_path_factory.mktemp("several")
    with PageServer({A: dict(BIRDS), B: dict(FISH)}).run_in_thread() as server:
        crawl_here(top / "birds", server.url(A, "/"))
        pages = server.sites[A]
        assert isinstance(pages, dict)
        pages["/tern"] = "<title>Common tern</title><p>a bird that migrates less"
        crawl_here(top / "fish", server.url(B, "/"), server.url(A, "/tern"))
        yield top / "birds", top / "fish"


def test_query_of_several_says_where_each_row_is_from(folders: tuple[Path, Path]) -> None:
    result = sterna("query", *folders, "SELECT collection, title FROM page ORDER BY title", "-f", "csv")
    assert result.stdout.splitlines() == [
        "collection,title",
        "fish,Atlantic cod",
        "birds,Birds",
        "fish,Common tern",
        "fish,Fish",
    ]
    visits = sterna(
        "query", *folders, "SELECT collection, count(*) FROM visit GROUP BY 1 ORDER BY 1", "-f", "csv"
    )
    assert visits.stdout.splitlines()[1:] == ["birds,1", "fish,2"]


def test_long_query_is_not_taken_for_a_path(folders: tuple[Path, Path]) -> None:
    long = f"SELECT count(*) AS n FROM page WHERE title <> '{'x' * 5_000}'"
    assert json.loads(sterna("query", *folders, long, "-f", "json").stdout) == [{"n": 4}]
    assert sterna("search", *folders, "x" * 300).returncode == 1


def test_query_from_a_file_takes_several_collections(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT count(DISTINCT collection) AS n FROM page")
    result = sterna("query", *folders, "--file", tmp_path / "q.sql", "-f", "json")
    assert json.loads(result.stdout) == [{"n": 2}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{birds}", "{fish}"), "give the query either as SQL or by --file FILE, after the collection"),
        (("{birds}",), "give the query either as SQL or by --file FILE, after the collection"),
        (("{birds}", "{birds}/../birds", "SELECT 1"), "is named twice"),
        (("{birds}", "{fish}", "SELECT 1", "--visit", "x"), "--visit is for one collection"),
        (("{birds}", "{fish}/nothing", "SELECT 1"), "nothing"),
    ],
)
def test_mistakes_are_named_in_one_line(
    folders: tuple[Path, Path], words: tuple[str, ...], said: str
) -> None:
    birds, fish = folders
    result = sterna("query", *(word.format(birds=birds, fish=fish) for word in words))
    (line,) = result.stderr.splitlines()
    assert said in line
    assert result.returncode in (2, 5)


def test_search_of_several_shows_the_newest_version_of_a_page(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        assert sterna("index", folder).returncode == 0
    result = sterna("search", *folders, "migrates", "--json")
    found = json.loads(result.stdout)
    assert {(hit["collection"], hit["title"]) for hit in found["hits"]} == {
        ("fish", "Common tern"),
        ("fish", "Atlantic cod"),
    }
    assert (found["total"], found["is_exact"], found["note"]) == (2, True, "")
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    shown = sterna("search", *folders, "title:birds").stdout
    assert "/  [birds]\n" in shown
    second = json.loads(sterna("search", *folders, "migrates", "--offset", "1", "--json").stdout)
    assert [hit["url"] for hit in second["hits"]] == [found["hits"][1]["url"]]


def test_pages_with_all_words_come_before_collections_that_have_some_of_them(
    folders: tuple[Path, Path],
) -> None:
    found = json.loads(sterna("search", *folders, "atlantic", "migrates", "--json").stdout)
    assert [hit["title"] for hit in found["hits"]] == ["Atlantic cod"]
    assert found["note"] == ""


def test_search_without_words_says_what_to_add(folders: tuple[Path, Path]) -> None:
    result = sterna("search", *folders)
    assert result.returncode == 2
    assert (
        f"sterna: give words to search for, such as: sterna search {folders[0]} {folders[1]} tern"
        in result.stderr
    )


def test_collections_in_python(folders: tuple[Path, Path]) -> None:
    several = sterna_package.Collections(*folders)
    with several.query("SELECT collection, count(*) AS n FROM page GROUP BY 1 ORDER BY 1") as answer:
        assert list(answer) == [{"collection": "birds", "n": 1}, {"collection": "fish", "n": 3}]
    assert several.names == ["birds", "fish"]
    assert [hit.collection for hit in several.search("atlantic").hits] == ["fish"]


def test_collections_in_python_refuse_what_is_none(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        sterna_package.Collections()
    with pytest.raises(UsageError, match="named twice"):
        sterna_package.Collections(folders[0], folders[0])
    with pytest.raises(NotACollection):
        sterna_package.Collections(folders[0], tmp_path / "none")
