"""Whole crawls of small sites: visits, slots, limits, scope."""

import gzip
import random
import sqlite3
from pathlib import Path

import brotli
import pytest
from tests.crawl.running import crawl_here, rows, sterna, stored_urls
from tests.servers.pages import Page, PageServer, linking
from tests.servers.plain import Reply
from warcio.archiveiterator import ArchiveIterator

from sterna.web.robots import MAX_BYTES

pytestmark = pytest.mark.servers

A, B, C = "127.0.2.1", "127.0.2.2", "127.0.2.3"


def visits(folder: Path) -> list[tuple[str, int, int, str]]:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        return db.execute(
            "SELECT origin, epoch, visit.pages, ended FROM visit JOIN site ON site.id = site_id"
            " ORDER BY began"
        ).fetchall()


def test_figure_2_of_the_crawlets_paper_three_sites_two_visits_to_the_first(tmp_path: Path) -> None:
    """w11 leads to w12; w21 and w32 lie outside; w13 is found only by way of w22, and leads to w14."""
    sites = {
        A: {
            "/w11": linking("/w12", f"http://{B}:{{port}}/w21"),
            "/w12": linking(f"http://{C}:{{port}}/w32"),
            "/w13": linking("/w14"),
            "/w14": linking("/w11"),
        },
        B: {"/w21": linking("/w22"), "/w22": linking(f"http://{A}:{{port}}/w13")},
        C: {"/w31": linking(), "/w32": linking("/w31")},
    }
    with PageServer(sites).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A, "/w11"), stay="any", allow_private=True)
    urls = [url.rpartition("/")[2] for url in stored_urls(tmp_path / "c")]
    assert urls == ["w11", "w12", "w13", "w14", "w21", "w22", "w31", "w32"]
    by_site = [origin.split("/")[2].split(":")[0] for origin, *_ in visits(tmp_path / "c")]
    assert sorted(by_site) == [A, A, B, C]
    first, *_, last = visits(tmp_path / "c")
    assert (first[1], first[2]) == (1, 2)
    assert (last[1], last[2]) == (2, 2)
    assert summary.visits == {"here": 4, "host": 0}
    assert [hit.path for hit in server.log].count("/w11") == 1


def test_site_whose_robots_txt_failed_is_asked_at_once_when_its_url_is_given_again(tmp_path: Path) -> None:
    busy = [Reply(503), Reply(503), Reply(404)]
    with PageServer(
        {A: {"/": linking("/a"), "/a": linking(), "/robots.txt": busy}}
    ).run_in_thread() as server:
        command = ("--into", tmp_path / "c", "--here", "--delay", "0", "--wait", "0", "--json")
        first = sterna("crawl", server.url(A), *command)
        assert first.returncode == 1
        waiting = sterna("crawl", *command)  # nobody asks
        assert waiting.returncode == 1
        assert [hit.path for hit in server.log] == ["/robots.txt"] * 2
        assert sterna("crawl", server.url(A), *command).returncode == 0
    assert len(stored_urls(tmp_path / "c")) == 2


@pytest.mark.parametrize("flag", ["--retry", "--ignore-robots"])
def test_flag_lifts_the_wait_for_a_robots_txt_that_failed(tmp_path: Path, flag: str) -> None:
    busy = [Reply(503), Reply(503), Reply(404)]
    with PageServer({A: {"/": linking(), "/robots.txt": busy}}).run_in_thread() as server:
        command = ("--into", tmp_path / "c", "--delay", "0", "--wait", "0")
        first = sterna("crawl", server.url(A), *command)
        assert "--retry" in first.stdout + first.stderr
        assert sterna("crawl", *command, flag).returncode == 0
    assert len(stored_urls(tmp_path / "c")) == 1


@pytest.mark.parametrize("coding", ["gzip", "br", ""])
def test_rules_of_a_robots_txt_that_is_cut_on_the_way_are_obeyed(tmp_path: Path, coding: str) -> None:
    noise = random.Random(1)
    rest = b"".join(b"# %064x\n" % noise.getrandbits(256) for _ in range(3 * MAX_BYTES // 67))
    body = b"User-agent: *\nDisallow: /a\n" + rest + b"Disallow: /b\n"
    sent = {"gzip": gzip.compress(body), "br": brotli.compress(body, quality=5), "": body}[coding]
    assert len(sent) > MAX_BYTES
    headers = {"Content-Encoding": coding} if coding else {}
    site: dict[str, Page] = {"/": linking("/a", "/b"), "/a": linking(), "/b": linking()}
    with PageServer({A: {**site, "/robots.txt": Reply(200, headers, sent)}}).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A))
        assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/b")]


def test_many_sites_are_visited_while_a_big_one_goes_on(tmp_path: Path) -> None:
    big = {"/": linking(*(f"/{n}" for n in range(200)))} | {f"/{n}": linking() for n in range(200)}
    small = {f"127.0.3.{n}": {"/": linking("/a"), "/a": linking()} for n in range(1, 6)}
    with PageServer({A: big, **small}, latency_seconds=0.02).run_in_thread() as server:
        seeds = [server.url(address) for address in (A, *small)]
        crawl_here(tmp_path / "c", *seeds, concurrency=4)
    ended = {
        address: max(hit.ended for hit in server.log if hit.address == address) for address in (A, *small)
    }
    assert max(ended[address] for address in small) < ended[A]


def test_page_limit_is_exact_and_shared(tmp_path: Path) -> None:
    page = {"/": linking(*(f"/{n}" for n in range(50)))} | {f"/{n}": linking() for n in range(50)}
    with PageServer({A: page, B: page}).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A), server.url(B), max_pages=30)
        assert (summary.pages, summary.ended) == (30, "limit")
        by_site = rows(tmp_path / "c", "SELECT site, count(*) FROM t GROUP BY site")
        assert sorted(count for _, count in by_site) == [15, 15]
        again = crawl_here(tmp_path / "c", server.url(A), server.url(B), max_pages=40)
    assert (again.pages, again.total_pages) == (10, 40)
    assert len(set(stored_urls(tmp_path / "c"))) == 40


def test_depth_limit_is_exact_whatever_the_order_of_answers(tmp_path: Path) -> None:
    """/deep is two links away by /a, and four by the chain that answers sooner."""
    sites = {
        A: {
            "/": linking("/a", "/b"),
            "/a": linking("/deep"),
            "/b": linking("/c"),
            "/c": linking("/d"),
            "/d": linking("/deep"),
            "/deep": linking("/below"),
            "/below": linking("/too-deep"),
            "/too-deep": linking(),
        }
    }
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), max_depth=3)
        depths = dict(rows(tmp_path / "c", "SELECT url, depth FROM t"))
        assert depths[server.url(A, "/deep")] == 2
        assert depths[server.url(A, "/below")] == 3
        assert server.url(A, "/too-deep") not in depths
        crawl_here(tmp_path / "c", server.url(A), max_depth=9)
    assert server.url(A, "/too-deep") in stored_urls(tmp_path / "c")


def test_include_and_exclude_hold_for_links_and_not_for_start_pages(tmp_path: Path) -> None:
    sites = {A: {"/": linking("/docs/a", "/docs/b.pdf", "/blog"), "/docs/a": linking(), "/blog": linking()}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), include=("/docs/",), exclude=(r"\.pdf$",))
    assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/docs/a")]


def test_nofollow_noindex_and_robots_tags_are_obeyed(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {
        A: {
            "/": '<a rel="nofollow" href="/no">n</a><a href="/quiet">q</a><a href="/dead-end">d</a>',
            "/quiet": '<meta name="robots" content="noindex"><title>Secret</title><a href="/beyond">b</a>',
            "/beyond": linking(),
            "/dead-end": Reply(headers={"X-Robots-Tag": "nofollow"}, body=b'<a href="/hidden">h</a>'),
            "/no": linking(),
            "/hidden": linking(),
        }
    }
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A))
    paths = [url.removeprefix(server.url(A, "")) for url in stored_urls(tmp_path / "c")]
    assert paths == ["/", "/beyond", "/dead-end", "/quiet"]
    assert rows(tmp_path / "c", "SELECT title, text FROM t WHERE url LIKE '%/quiet'") == [(None, None)]


def test_start_page_that_moved_to_another_site_takes_the_crawl_along(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {
        A: {},
        B: {"/": linking("/new"), "/new": linking(f"http://{C}:{{port}}/")},
        C: {"/": linking()},
    }
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/"] = Reply(301, {"Location": server.url(B)})
        crawl_here(tmp_path / "c", server.url(A), allow_private=True)
    assert stored_urls(tmp_path / "c") == [server.url(B), server.url(B, "/new")]


def test_link_into_a_private_network_is_not_followed(tmp_path: Path) -> None:
    sites = {A: {"/": linking(f"http://{B}:{{port}}/admin")}, B: {"/admin": linking()}}
    with PageServer(sites).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A), stay="any")
    assert {hit.address for hit in server.log} == {A}
    assert stored_urls(tmp_path / "c") == [server.url(A)]
    assert (summary.ended, summary.errors) == ("finished", {"private_address": 1})


def test_pages_that_only_a_sitemap_names_are_found(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": linking(), "/only": linking()}}
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/robots.txt"] = f"User-agent: *\nSitemap: {server.url(A, '/index.xml')}\n"
        sites[A]["/index.xml"] = (
            f"<sitemapindex><sitemap><loc>{server.url(A, '/s.xml')}</loc></sitemap></sitemapindex>"
        )
        sites[A]["/s.xml"] = f"<urlset><url><loc>{server.url(A, '/only')}</loc></url></urlset>"
        crawl_here(tmp_path / "c", server.url(A))
        assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/only")]
        crawl_here(tmp_path / "d", server.url(A), sitemaps=False)
    assert stored_urls(tmp_path / "d") == [server.url(A)]


def test_links_between_start_sites_are_followed(tmp_path: Path) -> None:
    sites = {A: {"/": linking(f"http://{B}:{{port}}/hidden")}, B: {"/": linking(), "/hidden": linking()}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), server.url(B))
    assert server.url(B, "/hidden") in stored_urls(tmp_path / "c")


def test_robots_txt_cannot_send_us_into_a_private_network(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": linking()}, B: {"/admin": "secret"}}
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/robots.txt"] = Reply(302, {"Location": server.url(B, "/admin")})
        summary = crawl_here(tmp_path / "c", server.url(A))
    assert {hit.address for hit in server.log} == {A}
    assert summary.pages == 0


def test_nested_sitemaps_end_and_pages_come_all_the_same(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": linking("/a"), "/a": linking()}}
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/robots.txt"] = "User-agent: *\nSitemap: /0.xml\n"
        for number in range(50):
            nested = f"<sitemap><loc>{server.url(A, f'/{number + 1}.xml')}</loc></sitemap>"
            sites[A][f"/{number}.xml"] = f"<sitemapindex>{nested}</sitemapindex>"
        summary = crawl_here(tmp_path / "c", server.url(A))
    assert (summary.pages, summary.ended) == (2, "finished")
    assert sum(hit.path.endswith(".xml") for hit in server.log) == 6


def test_narrower_scope_holds_for_what_already_waits(tmp_path: Path) -> None:
    pages = {"/": linking("/b", *(f"/cal/{n}" for n in range(20))), "/b": linking()}
    pages |= {f"/cal/{n}": linking() for n in range(20)}
    with PageServer({A: pages}).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), max_pages=1)
        summary = crawl_here(tmp_path / "c", server.url(A), exclude=("/cal/",))
    assert (summary.ended, summary.pending) == ("finished", 0)
    assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/b")]


def test_narrower_borders_hold_for_sites_that_already_wait(tmp_path: Path) -> None:
    sites = {A: {"/": linking(f"http://{B}:{{port}}/", "/a"), "/a": linking()}, B: {"/": linking()}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), stay="any", allow_private=True, max_pages=1)
        crawl_here(tmp_path / "c", server.url(A), stay="site", allow_private=True)
    assert {hit.address for hit in server.log} == {A}


def test_pages_that_changed_only_in_status_or_in_what_they_allow_are_told_apart(tmp_path: Path) -> None:
    body = b"<title>Same</title><p>words"
    sites: dict[str, dict[str, Page]] = {
        A: {"/": linking("/gone", "/quiet"), "/gone": Reply(body=body), "/quiet": Reply(body=body)}
    }
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A))
        sites[A]["/gone"] = Reply(404, body=body)
        sites[A]["/quiet"] = Reply(headers={"X-Robots-Tag": "noindex"}, body=body)
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
        newest = "SELECT url, arg_max(status, fetched), arg_max(title, fetched) FROM t GROUP BY url"
        found = {url.rpartition("/")[2]: rest for url, *rest in rows(tmp_path / "c", newest)}
        assert found["gone"][0] == 404
        last = rows(tmp_path / "c", "SELECT title FROM t WHERE url LIKE '%/quiet' ORDER BY fetched")
        assert last == [("Same",), (None,)]
        sites[A]["/quiet"] = Reply(body=body)
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    last = rows(tmp_path / "c", "SELECT title FROM t WHERE url LIKE '%/quiet' ORDER BY fetched")
    assert last == [("Same",), (None,), ("Same",)]


def test_sitemap_that_moved_stays_a_sitemap_when_visited_again(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": linking(), "/new": linking()}}
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/robots.txt"] = "User-agent: *\nSitemap: /old.xml\n"
        sites[A]["/old.xml"] = Reply(301, {"Location": "/real.xml"})
        sites[A]["/real.xml"] = "<urlset></urlset>"
        crawl_here(tmp_path / "c", server.url(A))
        sites[A]["/real.xml"] = f"<urlset><url><loc>{server.url(A, '/new')}</loc></url></urlset>"
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/new")]


def test_metas_for_our_own_name_are_obeyed(tmp_path: Path) -> None:
    sites = {A: {"/": '<meta name="TernBot" content="nofollow"><a href="/a">a</a>', "/a": linking()}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), user_agent="TernBot/1.0")
    assert stored_urls(tmp_path / "c") == [server.url(A)]


def test_page_that_robots_txt_opens_later_is_found_by_a_refresh(tmp_path: Path) -> None:
    start = Reply(headers={"ETag": '"1"'}, body=linking("/closed").encode())
    sites: dict[str, dict[str, Page]] = {A: {"/": start, "/closed": linking()}}
    with PageServer(sites).run_in_thread() as server:
        sites[A]["/robots.txt"] = "User-agent: *\nDisallow: /closed\n"
        first = crawl_here(tmp_path / "c", server.url(A))
        assert (first.pages, first.errors) == (1, {"robots": 1})
        sites[A] |= {"/": Reply(304), "/robots.txt": "User-agent: *\n"}
        with sqlite3.connect(tmp_path / "c" / "ledger.sqlite") as db:
            db.execute("UPDATE site SET robots_tried_at = 0")
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    assert stored_urls(tmp_path / "c") == [server.url(A), server.url(A, "/closed")]


def test_warc_that_begins_with_a_refresh_has_whole_responses(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": Reply(headers={"ETag": '"1"'}, body=b"<p>whole")}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A))
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0, warc=True)
        assert "if-none-match" not in server.log[-1].headers
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0, warc=True)
        assert server.log[-1].headers["if-none-match"] == '"1"'
    kinds = []
    for path in sorted((tmp_path / "c" / "warc").iterdir()):
        with path.open("rb") as stream:
            kinds += [record.rec_type for record in ArchiveIterator(stream)]
    assert [kind for kind in kinds if kind in ("response", "revisit")] == ["response", "revisit"]


def test_links_alone_are_kept_without_any_text_and_lead_to_the_same_pages(tmp_path: Path) -> None:
    page = '<title>T</title><p>words <a href="/b">to b</a> <a rel="nofollow" href="/c">not c</a>'
    sites: dict[str, dict[str, Page]] = {A: {"/": page, "/b": linking("/"), "/c": linking()}}
    with PageServer(sites).run_in_thread() as server:
        for folder, keep in ((tmp_path / "all", "all"), (tmp_path / "links", "links")):
            crawl_here(folder, server.url(A), keep=keep)
        assert stored_urls(tmp_path / "links") == stored_urls(tmp_path / "all")
    kept = "SELECT url, title, text FROM t WHERE title IS NOT NULL OR text IS NOT NULL"
    assert rows(tmp_path / "links", kept) == []
    links = "SELECT from_url, to_url, rel FROM t ORDER BY ALL"
    assert rows(tmp_path / "links", links, "link") == rows(tmp_path / "all", links, "link")
    assert rows(tmp_path / "links", "SELECT DISTINCT text FROM t", "link") == [(None,)]


def test_page_whose_links_alone_were_kept_is_read_whole_by_a_refresh_that_keeps_all(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": Reply(headers={"ETag": '"1"'}, body=b"<p>whole")}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), keep="links")
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
        assert "if-none-match" not in server.log[-1].headers
        crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
        assert server.log[-1].headers["if-none-match"] == '"1"'
    assert rows(tmp_path / "c", "SELECT text FROM t ORDER BY fetched") == [(None,), ("whole",)]
