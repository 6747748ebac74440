"""A document root answers as a web server would, and shows nothing that lies outside it."""

import asyncio
from pathlib import Path

import pytest

from sterna.errors import FetchError
from sterna.web.http import Request, Response
from sterna.web.root import RootFetcher

SITE = "https://a.test"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "index.html").write_text("<title>Start</title>")
    (root / "docs" / "index.htm").write_text("docs")
    (root / "docs" / "ä b.txt").write_text("umlaut")
    (root / "data.tar.gz").write_bytes(b"\x1f\x8b")
    (root / "no-type").write_bytes(b"?")
    (tmp_path / "secret.html").write_text("secret")
    (root / "out.html").symlink_to(tmp_path / "secret.html")
    (root / "within.html").symlink_to(root / "index.html")
    return root


def get(root: Path, path: str, **fields: object) -> Response:
    request = Request(url=f"{SITE}{path}", **fields)  # type: ignore[arg-type]
    return asyncio.run(RootFetcher(root).fetch(request))


@pytest.mark.parametrize(
    ("path", "status", "content_type"),
    [
        ("/", 200, "text/html"),
        ("/index.html?x=1", 200, "text/html"),
        ("/docs/", 200, "text/html"),
        ("/docs/%C3%A4%20b.txt", 200, "text/plain"),
        ("/data.tar.gz", 200, "application/gzip"),
        ("/no-type", 200, "application/octet-stream"),
        ("/within.html", 200, "text/html"),
        ("/docs", 301, ""),
        ("/empty/", 403, ""),
        ("/gone.html", 404, ""),
        ("/index.html/more", 404, ""),
        ("/a%00b", 404, ""),
    ],
)
def test_path_is_answered_as_a_server_would(root: Path, path: str, status: int, content_type: str) -> None:
    response = get(root, path)

    assert (response.status, response.header("content-type")) == (status, content_type)


@pytest.mark.parametrize(
    "path",
    ["/out.html", "/../secret.html", "/%2e%2e/secret.html", "/docs/..%2f..%2fsecret.html", "//etc/passwd"],
)
def test_nothing_outside_the_root_is_read(root: Path, path: str) -> None:
    response = get(root, path)

    assert response.status == 404
    assert response.body == b""


def test_folder_without_its_slash_leads_to_the_one_with_it(root: Path) -> None:
    assert get(root, "/docs").location() == "/docs/"


def test_page_that_did_not_change_is_not_sent_again(root: Path) -> None:
    first = get(root, "/index.html")

    by_tag = get(root, "/index.html", headers=(("If-None-Match", first.header("etag")),))
    by_time = get(root, "/index.html", headers=(("If-Modified-Since", first.header("last-modified")),))

    assert (by_tag.status, by_tag.body) == (304, b"")
    assert by_time.status == 304


def test_file_that_is_too_large_is_refused_or_cut(root: Path) -> None:
    with pytest.raises(FetchError, match="too_large"):
        get(root, "/index.html", max_bytes=5)

    assert get(root, "/index.html", max_bytes=5, may_cut=True).body == b"<titl"
