"""What pages need to be shown is fetched where it is asked for, after the pages and apart from them."""

from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, rows, sterna, stored_urls
from tests.servers.pages import Page, PageServer, linking
from tests.servers.plain import Reply
from warcio.archiveiterator import ArchiveIterator

from sterna.errors import UsageError
from sterna.home.options import Options

pytestmark = pytest.mark.servers

A, CDN = "127.0.2.1", "127.0.2.2"
PICTURE = Reply(headers={"Content-Type": "image/png"}, body=b"picture")
WIDTHS = (150, 300, 600, 768, 1024, 1536, 2048, 3072)


def post(number: int) -> str:
    """A post with three pictures, each in the sizes that blogs make of one."""
    pictures = (f"/p{number}-{picture}" for picture in range(3))
    return "".join(
        f'<img src="{each}-768.png" sizes="(max-width: 768px) 100vw, 768px" srcset="'
        + ", ".join(f"{each}-{width}.png {width}w" for width in WIDTHS)
        + '">'
        for each in pictures
    )


def blog() -> dict[str, dict[str, Page]]:
    posts: dict[str, Page] = {f"/{number}": post(number) for number in range(10)}
    pictures = (
        f"/p{number}-{picture}-{width}.png"
        for number in range(10)
        for picture in range(3)
        for width in WIDTHS
    )
    return {A: {"/": linking(*posts), **posts, **dict.fromkeys(pictures, PICTURE)}}


def paths_of(server: PageServer) -> list[str]:
    return [hit.path for hit in server.log if hit.path != "/robots.txt"]


def archived(folder: Path) -> list[str]:
    found = []
    for path in sorted((folder / "warc").iterdir()):
        with path.open("rb") as stream:
            records = [record for record in ArchiveIterator(stream) if record.rec_type == "response"]
            found += [record.rec_headers["WARC-Target-URI"] for record in records]
    return found


def test_ten_posts_are_eleven_requests_without_their_pictures(tmp_path: Path) -> None:
    with PageServer(blog()).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A))
        assert len(paths_of(server)) == summary.pages == 11
    kinds = rows(
        tmp_path / "c", "SELECT rel, count(*) FROM t WHERE rel <> '' GROUP BY rel ORDER BY rel", "link"
    )
    assert kinds == [("img", 60), ("srcset", 180)]


def test_of_each_picture_the_sizes_that_usual_screens_show_come_after_the_pages(tmp_path: Path) -> None:
    with PageServer(blog()).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A), warc=True, requisites=True)
        paths = paths_of(server)
        assert (summary.pages, summary.requisites) == (11, 60)
        assert summary.requisite_bytes > 60 * len(PICTURE.body)
        assert not any(path.startswith("/p") for path in paths[:11])
        assert {path.rpartition("-")[2] for path in paths[11:]} == {"768.png", "1536.png"}
        assert len(set(paths)) == len(paths)
    assert len(stored_urls(tmp_path / "c")) == 11
    assert len(archived(tmp_path / "c")) == 71


def test_what_pages_need_of_other_sites_leads_nowhere(tmp_path: Path) -> None:
    elsewhere = f"http://{CDN}:{{port}}"
    style = Reply(headers={"Content-Type": "text/css"}, body=b"@import '/more.css'; a { src: url(font) }")
    sites: dict[str, dict[str, Page]] = {
        A: {"/": f'<link rel=stylesheet href="{elsewhere}/a.css"><img src="{elsewhere}/moved">'},
        CDN: {
            "/robots.txt": "User-agent: *\nDisallow: /font\n",
            "/a.css": style,
            "/more.css": Reply(headers={"Content-Type": "text/css"}, body=b"a { background: url(x.png) }"),
            "/moved": Reply(302, {"Location": "/page"}),
            "/page": linking("/never"),
            "/x.png": PICTURE,
        },
    }
    with PageServer(sites).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A), warc=True, requisites=True, allow_private=True)
        asked = {hit.path for hit in server.log if hit.address == CDN}
    assert asked == {"/robots.txt", "/a.css", "/more.css", "/moved", "/page", "/x.png"}
    assert (summary.pages, summary.requisites, summary.errors) == (1, 4, {"requisite": 1})
    assert stored_urls(tmp_path / "c") == [server.url(A)]


def test_requisites_are_bounded_in_number_and_in_bytes_over_all_runs(tmp_path: Path) -> None:
    with PageServer(blog()).run_in_thread() as server:
        limits: dict[str, dict[str, int]] = {"a": {"max_requisites": 7}, "b": {"max_requisite_bytes": 1}}
        for folder, limit in limits.items():
            options: dict[str, Any] = {"warc": True, "requisites": True, **limit}
            first = crawl_here(tmp_path / folder, server.url(A), **options)
            again = crawl_here(tmp_path / folder, server.url(A), **options)
            assert (first.pages, first.ended) == (11, "finished")
            assert first.requisites == limit.get("max_requisites", first.requisites)
            assert 0 < first.requisites < 60
            assert (again.pages, again.requisites) == (0, 0)
        more = crawl_here(tmp_path / "a", server.url(A), warc=True, requisites=True)
        assert more.requisites == 53


def test_only_kept_pages_and_what_is_not_excluded_count(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {
        A: {
            "/": linking("/wanted"),
            "/wanted": '<p>wombat<img src="/a.png"><img src="/ad.png">',
            "/a.png": PICTURE,
            "/ad.png": PICTURE,
            "/logo.png": PICTURE,
        }
    }
    sites[A]["/"] = linking("/wanted") + "<img src=/logo.png>"
    spec = tmp_path / "wombats.toml"
    spec.write_text(
        'name = "wombats"\n[scope]\nexclude = ["/ad"]\nrequisites = true\n'
        '[select]\nkeywords_any = ["wombat"]\n'
    )
    with PageServer(sites).run_in_thread() as server:
        done = sterna(
            "crawl", spec, server.url(A), "--into", tmp_path / "c", "--delay", "0", "--warc", "--here"
        )
        assert done.returncode == 0, done.stderr
        assert paths_of(server) == ["/", "/wanted", "/a.png"]


def test_a_picture_that_is_linked_as_a_page_is_one(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": "<img src=/a.png><a href=/a.png>a</a>", "/a.png": PICTURE}}
    with PageServer(sites).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A), warc=True, requisites=True)
    assert (summary.pages, summary.requisites) == (2, 0)


def test_requisites_of_a_collection_are_fetched_by_a_later_run_too(tmp_path: Path) -> None:
    with PageServer(blog()).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), warc=True, max_pages=3)
        summary = crawl_here(tmp_path / "c", server.url(A), warc=True, max_pages=3, requisites=True)
        assert (summary.pages, summary.requisites) == (0, 12)


def test_a_refresh_asks_for_them_again_and_a_picture_of_a_new_page_is_found(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": "<img src=/a.png>", "/a.png": PICTURE, "/b.png": PICTURE}}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), warc=True, requisites=True)
        sites[A]["/"] = "<img src=/a.png><img src=/b.png>"
        summary = crawl_here(tmp_path / "c", server.url(A), warc=True, requisites=True, refresh=0.0)
        assert (summary.pages, summary.requisites, summary.pending) == (1, 2, 0)


def test_a_selection_of_media_follows_their_links_like_those_to_pages(tmp_path: Path) -> None:
    spec = tmp_path / "media.toml"
    spec.write_text('name = "media"\n[select]\ncontent_types = ["image/*"]\n')
    sites: dict[str, dict[str, Page]] = {
        A: {"/": "<img src=/a.png><video src=/v.mp4></video><script src=/s.js></script>", "/a.png": PICTURE}
    }
    with PageServer(sites).run_in_thread() as server:
        done = sterna("crawl", spec, server.url(A), "--into", tmp_path / "c", "--delay", "0", "--here")
        assert done.returncode == 0, done.stderr
        assert sorted(paths_of(server)) == ["/", "/a.png"]
    assert stored_urls(tmp_path / "c") == [server.url(A, "/a.png")]


@pytest.mark.parametrize("others", [{}, {"warc": True, "require_host": True}])
def test_requisites_without_a_place_for_them_are_refused(others: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--requisites"):
        Options(requisites=True, **others).check()
