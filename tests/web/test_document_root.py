"""A document root answers as a web server would, and shows nothing that lies outside it or is not for all."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.errors import ConfigError, FetchError
from sterna.web.closed import ClosedPaths
from sterna.web.document_root import DocumentRoot, PathKind
from sterna.web.http import Request, Response
from sterna.web.root_fetcher import RootFetcher

SITE = "https://a.test"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "index.html").write_text("<title>Start</title>")
    (root / "docs" / "index.htm").write_text("docs")
    (root / "docs" / "ä b.txt").write_text("umlaut")
    (root / "sitemap.xml.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "secret.html").write_text("secret")
    (root / "out.html").symlink_to(tmp_path / "secret.html")
    (root / "within.html").symlink_to(root / "index.html")
    return root


def get(
    root: Path,
    path: str,
    *,
    aliases: tuple[tuple[str, Path], ...] = (),
    kinds: tuple[str, ...] = (),
    closed: tuple[str, ...] = (),
    **fields: object,
) -> Response:
    request = Request(url=f"{SITE}{path}", closed=(ClosedPaths(closed),), **fields)  # type: ignore[arg-type]
    return asyncio.run(RootFetcher(root, aliases, kinds=kinds).fetch(request))


@pytest.mark.parametrize(
    ("path", "status", "content_type"),
    [
        ("/", 200, "text/html"),
        ("/index.html?x=1", 200, "text/html"),
        ("/docs/", 200, "text/html"),
        ("/docs/%C3%A4%20b.txt", 200, "text/plain"),
        ("/sitemap.xml.gz", 200, "application/gzip"),
        ("/within.html", 200, "text/html"),
        ("/docs", 301, ""),
        ("/empty/", 403, ""),
        ("/gone.html", 404, ""),
        ("", 200, "text/html"),
        ("//docs//index.htm", 200, "text/html"),
        ("/index.html/more", 404, ""),
        ("/index.html/", 404, ""),
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
    assert get(root, "/docs?a=b").location() == "/docs/?a=b"


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


@pytest.mark.parametrize(
    "name",
    [
        ".hidden.html", ".git/config", "docs/.env", ".well-known/.key", "docs/.well-known/x.txt",
        "app.php", "APP.PHP", "app.php.txt", "old.php5", "page.phtml", "lib.inc", "tool.py", "tool.cgi",
        "tool.pl", "page.jsp", "page.aspx", "page.shtml", "run.sh",
        "index.html~", "index.html.bak", "#index.html#", "index.html.swp", "index.html.orig", "conf.old",
    ],
)  # fmt: skip
def test_what_a_server_would_hide_or_run_is_not_there(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("secret")

    assert get(root, "/" + name.replace("#", "%23")).status == 404


def test_well_known_folder_is_not_hidden(root: Path) -> None:
    (root / ".well-known").mkdir()
    (root / ".well-known" / "security.txt").write_text("Contact")

    assert get(root, "/.well-known/security.txt").body == b"Contact"


def test_file_that_can_be_run_is_not_there(root: Path) -> None:
    (root / "index.html").chmod(0o755)

    assert get(root, "/index.html").status == 404


@pytest.mark.parametrize(("name", "mode"), [("index.html", 0o640), ("docs", 0o750)])
def test_what_not_everyone_may_read_is_refused(root: Path, name: str, mode: int) -> None:
    (root / name).chmod(mode)

    assert get(root, f"/{name}").status == 403
    assert get(root, "/docs/deep/").status == 403


@pytest.mark.parametrize("folder", ["", "docs"])
def test_folder_with_rules_for_apache_is_refused_with_all_below(root: Path, folder: str) -> None:
    (root / folder / ".htaccess").write_text("Require all denied")

    assert get(root, "/docs/").status == 403
    assert get(root, "/docs/deep/").status == 403


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("../index.html", 200),
        ("{root}/index.html", 200),
        ("../docs/../index.html", 200),
        ("./deep/../../index.html", 200),
        ("../../root/index.html", 404),  # it leaves the root, though it comes back
        ("../../secret.html", 404),
        ("{root}/../secret.html", 404),
        ("{root}-beside/index.html", 404),
        ("/etc/hostname", 404),
        ("link.html", 404),
        ("../.hidden.html", 404),
        ("nothing.html", 404),
        ("../app.php", 404),
        ("../secret.html/x", 404),
    ],
)
def test_link_is_followed_as_far_as_it_stays_in_the_root(root: Path, target: str, status: int) -> None:
    (root / ".hidden.html").write_text("secret")
    (root / "app.php").write_text("secret")
    (root.parent / "root-beside").mkdir()
    (root.parent / "root-beside" / "index.html").write_text("secret")
    (root / "docs" / "link.html").symlink_to(target.format(root=root))

    response = get(root, "/docs/link.html")

    assert (response.status, b"secret" in response.body) == (status, False)


def test_folder_behind_a_link_is_read(root: Path) -> None:
    (root / "way").symlink_to("docs")

    assert get(root, "/way/").body == b"docs"
    assert get(root, "/way").location() == "/way/"


def test_root_behind_a_link_is_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(root)
    (root / "by-the-other-name.html").symlink_to(tmp_path / "current" / "index.html")

    assert get(tmp_path / "current", "/by-the-other-name.html").status == 200


def test_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe.html")

    assert get(root, "/pipe.html").status == 404


def test_alias_stands_before_the_root(root: Path, tmp_path: Path) -> None:
    for name in ("files", "newer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    aliases = (("/docs", tmp_path / "files"), ("/docs/deep/", tmp_path / "newer"))

    assert get(root, "/docs/a.txt", aliases=aliases).body == b"files"
    assert get(root, "/docs/deep/a.txt", aliases=aliases).body == b"newer"
    assert get(root, "/docs/index.htm", aliases=aliases).status == 404
    assert get(root, "/docsa.txt", aliases=aliases).status == 404
    assert get(root, "/index.html", aliases=aliases).status == 200


@pytest.mark.parametrize("path", ["", "/", "files", "/a//b", "/../x", "/a%2Fb"])
def test_alias_that_cannot_be_says_so(root: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="alias"):
        RootFetcher(root, [(path, root)])


def test_root_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        RootFetcher(tmp_path / "nothing")


async def test_file_that_changed_since_it_was_found_is_not_given_in_half(root: Path) -> None:
    with DocumentRoot(root).find([b"index.html"]) as entry:
        assert entry.kind is PathKind.FILE
        assert await entry.read(1_000) == b"<title>Start</title>"
        (root / "index.html").write_text("shorter")
        assert await entry.read(1_000) is None


async def test_large_file_is_read_whole(root: Path) -> None:
    content = os.urandom(1_000_000)
    (root / "large.pdf").write_bytes(content)

    response = await RootFetcher(root).fetch(Request(url=f"{SITE}/large.pdf"))

    assert response.body == content


@contextmanager
def swapping(path: Path, other: Path) -> Iterator[None]:
    """Lets two things change places, again and again, while the block runs."""
    is_over = threading.Event()
    aside = path.with_name("aside")

    def swap() -> None:
        while not is_over.is_set():
            path.rename(aside)
            other.rename(path)
            aside.rename(other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def count_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nobody_leads_the_way_out_by_swapping_what_is_on_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "index.htm").write_text("secret")
    (root / "way").symlink_to(tmp_path / "outside")
    fetcher = RootFetcher(root)
    open_before = count_open()

    with swapping(root / "docs", root / "way"):
        bodies = [(await fetcher.fetch(Request(url=f"{SITE}/docs/index.htm"))).body for _ in range(1_000)]

    assert set(bodies) == {b"docs", b""}
    assert count_open() == open_before
