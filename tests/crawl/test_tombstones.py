"""Pages that end between two crawls, and those of which a crawler wants no more: here and at a host."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.hosting import crawl_with_keys, hosts
from tests.crawl.running import ask, crawl_here, rows, sterna
from tests.servers.pages import PageServer, linking
from tests.servers.plain import Reply

from sterna import Collection, Select, Spec, crawl
from sterna.home.progress import Summary

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A = "127.0.7.1"
GONE, BROKEN = Reply(404, body=b"not here"), Reply(500, body=b"out of order")
KEPT = {"/clinic", "/ward"}


def text(words: str) -> str:
    return linking("/", title=words) + f"<p>{words}</p>"


def site() -> dict[str, Any]:
    return {
        "/": linking("/clinic", "/ward", "/garden", title="Start"),
        "/clinic": Reply(headers={"ETag": '"clinic"'}, body=text("Our surgery").encode()),
        "/ward": text("A ward of the surgery"),
        "/garden": text("Roses and herbs"),
    }


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer({A: site()}).run_in_thread() as running:
        yield running


def wanted(folder: Path, server: PageServer, **options: Any) -> Summary:
    """A crawl for what has the word surgery, of all pages again."""
    spec = Spec(name="clinics", seeds=(server.url(A),), select=Select(keywords_any=("surgery",)))
    options = {"delay": 0, "here": True, "refresh_seconds": 0.0, "index": False} | options
    return crawl(spec, folder / "c", **options)


def change(server: PageServer, path: str, reply: Any) -> None:
    pages: Any = server.sites[A]
    pages[path] = reply


def paths(found: list[dict[str, Any]]) -> list[str]:
    return [f"/{row['url'].rpartition('/')[2]}" for row in found]


def page_paths(folder: Path) -> set[str]:
    return set(paths(ask(folder / "c", "SELECT url FROM page")))


def events(folder: Path, kind: str = "deleted") -> list[str]:
    return paths(ask(folder / "c", f"SELECT url FROM event WHERE kind = '{kind}' ORDER BY fetched"))


@pytest.mark.parametrize("status", [404, 410])
def test_kept_page_that_is_gone_is_deleted(tmp_path: Path, server: PageServer, status: int) -> None:
    wanted(tmp_path, server)
    change(server, "/ward", Reply(status))
    wanted(tmp_path, server)
    assert (events(tmp_path), page_paths(tmp_path)) == (["/ward"], {"/clinic"})
    history = ask(tmp_path / "c", "SELECT status, error, text FROM page_history WHERE url LIKE '%/ward'")
    assert history[1] == {"status": status, "error": "unwanted", "text": None}


def test_kept_page_that_no_longer_matches_is_deleted(tmp_path: Path, server: PageServer) -> None:
    wanted(tmp_path, server)
    change(server, "/ward", text("A ward of the school"))
    wanted(tmp_path, server)
    assert (events(tmp_path), page_paths(tmp_path)) == (["/ward"], {"/clinic"})
    (row,) = ask(tmp_path / "c", "SELECT status FROM page_history WHERE error = 'unwanted'")
    assert row["status"] == 200


def test_page_that_comes_back_is_created_again(tmp_path: Path, server: PageServer) -> None:
    wanted(tmp_path, server)
    change(server, "/ward", GONE)
    wanted(tmp_path, server)
    change(server, "/ward", text("A ward of the surgery"))
    wanted(tmp_path, server)
    assert page_paths(tmp_path) == KEPT
    assert (events(tmp_path), events(tmp_path, "created")[-1]) == (["/ward"], "/ward")


def test_end_of_a_page_is_stored_once_and_of_an_unwanted_page_never(
    tmp_path: Path, server: PageServer
) -> None:
    wanted(tmp_path, server)
    for path in ("/ward", "/garden"):
        change(server, path, GONE)
    for _ in range(3):
        wanted(tmp_path, server)
    history = ask(tmp_path / "c", "SELECT url FROM page_history WHERE error = 'unwanted'")
    assert (paths(history), events(tmp_path)) == (["/ward"], ["/ward"])


def test_deleted_page_leaves_search_and_exports(tmp_path: Path, server: PageServer) -> None:
    wanted(tmp_path, server, index=True)
    change(server, "/ward", text("A ward of the school"))
    wanted(tmp_path, server, index=True)
    assert [hit.url for hit in Collection(tmp_path / "c").search("surgery").hits] == [
        server.url(A, "/clinic")
    ]
    result = sterna("export", tmp_path / "c", "--to", "csv", "--out", "-")
    assert "/clinic" in result.stdout
    assert "/ward," not in result.stdout


@pytest.mark.parametrize("reply", [BROKEN, Reply(403)])
def test_failed_fetch_deletes_nothing(tmp_path: Path, server: PageServer, reply: Reply) -> None:
    wanted(tmp_path, server)
    change(server, "/ward", reply)
    wanted(tmp_path, server)
    assert (events(tmp_path), page_paths(tmp_path)) == ([], KEPT)
    change(server, "/ward", GONE)
    wanted(tmp_path, server)
    assert (events(tmp_path), page_paths(tmp_path)) == (["/ward"], {"/clinic"})


def test_rules_that_drop_a_page_delete_it(tmp_path: Path, server: PageServer) -> None:
    rule = '(defrule other (page) (test (= (text-count "surgery") 0)) => (drop))'
    (tmp_path / "r.clp").write_text(rule)
    spec = Spec(name="ruled", seeds=(server.url(A),), rules=("r.clp",))

    def visit() -> None:
        crawl(spec, tmp_path / "c", folder=tmp_path, delay=0, here=True, refresh_seconds=0.0, index=False)

    visit()
    assert page_paths(tmp_path) == KEPT
    change(server, "/ward", text("A ward of the school"))
    change(server, "/clinic", GONE)
    visit()
    assert sorted(events(tmp_path)) == ["/clinic", "/ward"]
    assert page_paths(tmp_path) == set()


def test_crawler_at_a_host_sees_the_end_of_a_page(tmp_path: Path, server: PageServer) -> None:
    spec = tmp_path / "clinics.toml"
    spec.write_text(
        f'name = "clinics"\nseeds = ["{server.url(A)}"]\n[select]\nkeywords_any = ["surgery"]\n'
        "[politeness]\ndelay = 0\n"
    )
    with hosts(server, tmp_path, A):
        crawl_with_keys(tmp_path, spec, "--require-host")
        change(server, "/ward", text("A ward of the school"))
        change(server, "/clinic", GONE)
        again = crawl_with_keys(tmp_path, spec, "--require-host", "--refresh", "0")
    assert again["visits"] == {"here": 0, "host": 1}
    assert sorted(events(tmp_path)) == ["/clinic", "/ward"]
    assert page_paths(tmp_path) == set()


# -- crawls that keep every page -----------------------------------------------------------------------------


def test_missing_page_has_one_row_however_often_it_is_visited(tmp_path: Path, server: PageServer) -> None:
    change(server, "/garden", GONE)
    for _ in range(3):
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    assert rows(tmp_path / "c", "SELECT count(*) FROM t WHERE status = 404") == [(1,)]


def test_failed_fetch_keeps_the_validators_and_the_newest_version(tmp_path: Path, server: PageServer) -> None:
    crawl_here(tmp_path / "c", server.url(A))
    good: Any = server.sites[A]["/clinic"]
    change(server, "/clinic", BROKEN)
    failed = crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    assert failed.errors == {"http_500": 1}
    (row,) = ask(tmp_path / "c", "SELECT title FROM page WHERE url LIKE '%/clinic'")
    assert row["title"] == "Our surgery"
    change(server, "/clinic", [Reply(304), good])
    crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    asked = [hit.headers.get("if-none-match") for hit in server.log if hit.path == "/clinic"]
    assert asked[-1] == '"clinic"'
    (row,) = ask(tmp_path / "c", "SELECT title FROM page WHERE url LIKE '%/clinic'")
    assert row["title"] == "Our surgery"


def test_wanted_pages_of_a_refreshed_crawl_are_counted_whether_they_changed_or_not(
    tmp_path: Path, server: PageServer
) -> None:
    garden = Reply(headers={"ETag": '"g"'}, body=text("Roses and herbs").encode())
    change(server, "/garden", garden)
    assert (wanted(tmp_path, server).kept, wanted(tmp_path, server).kept) == (2, 2)
    for path, tag in (("/clinic", "clinic"), ("/garden", "g")):
        change(server, path, Reply(304, {"ETag": f'"{tag}"'}))
    again = wanted(tmp_path, server)
    assert (again.pages, again.unchanged, again.kept) == (4, 4, 2)
