"""A file comes from the disk only if the web server shows that very file; all else comes from the server."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.errors import FetchError
from sterna.host.site import source
from sterna.host.site.source import PROOF_BYTES, TRUST_SECONDS, RootedFetcher
from sterna.web.closed import ClosedPaths
from sterna.web.document_root import DocumentRoot
from sterna.web.http import Request, Response

SITE = "http://www.example.org"
PAGE = b"<title>Page</title>" + b"words " * 200
TIME = 1_700_000_000
MODIFIED = "Tue, 14 Nov 2023 22:13:20 GMT"

Change = Callable[[dict[str, str]], object]


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


class Server:
    """Shows the files of a folder as a web server does, ranges too; what it says can be changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.asked: list[tuple[str, bool]] = []  # path, and whether only the beginning
        self.says: dict[str, Response] = {}
        self.change: Change = lambda fields: None
        self.body: Callable[[bytes], bytes] = lambda body: body
        self.meanwhile: Callable[[], object] = lambda: None

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(SITE)
        is_range = "Range" in dict(request.headers)
        self.asked.append((path, is_range))
        if path in self.says:
            return self.says[path]
        content = (self._root / path.partition("?")[0].lstrip("/")).read_bytes()
        fields = {"content-type": "text/html; charset=utf-8", "last-modified": MODIFIED, "etag": '"x"'}
        status, shown = 200, b"by the server: " + content
        if is_range:
            status, shown = 206, self.body(content[:PROOF_BYTES])
            fields["content-range"] = f"bytes 0-{len(shown) - 1}/{len(content)}"
        fields["content-length"] = str(len(shown))
        self.change(fields)
        self.meanwhile()
        return answering(status, shown, **fields)


def answering(status: int, body: bytes = b"", **fields: str) -> Response:
    headers = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    return Response(status=status, head=b"", body=body, headers=headers, seconds=0.25, wire_bytes=99)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (
        "page.html",
        "other.html",
        "third.html",
        "note.txt",
        "docs/page.html",
        "app.php",
        ".hidden.html",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PAGE)
        os.utime(path, (TIME, TIME))
    return tmp_path


@pytest.fixture
def server(root: Path) -> Server:
    return Server(root)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def every(root: Path, server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> RootedFetcher:
    monkeypatch.setattr(source, "WORTH_BYTES", len(PAGE))
    return RootedFetcher(DocumentRoot(root), server, clock)


@pytest.fixture
def by_folder(root: Path, server: Server, clock: Clock) -> RootedFetcher:
    return RootedFetcher(DocumentRoot(root), server, clock, checks_every=False)


async def get(fetcher: RootedFetcher, path: str, **fields: object) -> Response:
    return await fetcher.fetch(Request(url=SITE + path, **fields))  # type: ignore[arg-type]


async def test_file_that_the_server_shows_is_read_from_the_disk(every: RootedFetcher, server: Server) -> None:
    response = await get(every, "/page.html")

    assert (response.status, response.body) == (200, PAGE)
    assert response.header("content-type") == "text/html; charset=utf-8"
    assert response.header("content-length") == str(len(PAGE))
    assert response.header("etag") == '"x"'
    assert not response.header("content-range")
    assert response.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (response.seconds, response.wire_bytes) == (0.25, 99)
    assert server.asked == [("/page.html", True)]


async def test_small_file_is_simply_asked_for(every: RootedFetcher, server: Server, root: Path) -> None:
    (root / "page.html").write_bytes(PAGE[:-1])

    assert (await get(every, "/page.html")).body == b"by the server: " + PAGE[:-1]
    assert server.asked == [("/page.html", False)]


async def test_every_file_is_judged_each_time(every: RootedFetcher, server: Server) -> None:
    for path in ("/page.html", "/other.html", "/page.html"):
        await get(every, path)

    assert server.asked == [("/page.html", True), ("/other.html", True), ("/page.html", True)]


@pytest.mark.parametrize("status", [200, 301, 304, 401, 403, 404, 500])
async def test_whatever_else_the_server_says_is_the_answer(
    every: RootedFetcher, server: Server, status: int
) -> None:
    server.says["/page.html"] = answering(status, b"by the server")

    response = await get(every, "/page.html")

    assert (response.status, response.body) == (status, b"by the server")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update({"content-range": f"bytes 0-255/{len(PAGE) + 1}"}),
        lambda fields: fields.update({"content-range": f"bytes 1-256/{len(PAGE)}"}),
        lambda fields: fields.pop("content-range", None),
        lambda fields: fields.update({"last-modified": "Tue, 14 Nov 2023 22:13:21 GMT"}),
        lambda fields: fields.pop("last-modified", None),
        lambda fields: fields.update({"content-encoding": "gzip"}),
    ],
    ids=["length", "range", "no range", "time", "no time", "coding"],
)
async def test_another_file_is_asked_for_whole(every: RootedFetcher, server: Server, change: Change) -> None:
    server.change = change

    response = await get(every, "/page.html")

    assert response.body == b"by the server: " + PAGE
    assert server.asked == [("/page.html", True), ("/page.html", False)]


async def test_file_that_begins_otherwise_is_asked_for_whole(every: RootedFetcher, server: Server) -> None:
    server.body = lambda body: body[:-1] + b"?"

    assert (await get(every, "/page.html")).body == b"by the server: " + PAGE


async def test_file_that_changes_meanwhile_is_asked_for_whole(
    every: RootedFetcher, server: Server, root: Path
) -> None:
    server.meanwhile = lambda: (root / "page.html").write_bytes(PAGE.replace(b"words", b"w0rds"))

    response = await get(every, "/page.html")

    assert response.body == b"by the server: " + PAGE.replace(b"words", b"w0rds")


async def test_range_that_the_server_cannot_give_is_asked_for_whole(
    every: RootedFetcher, server: Server, root: Path
) -> None:
    server.says["/page.html"] = answering(416)

    await get(every, "/page.html")

    assert server.asked == [("/page.html", True), ("/page.html", False)]


@pytest.mark.parametrize(
    "path",
    [
        "/", "/docs", "/docs/", "/gone.html", "/app.php", "/.hidden.html", "//page.html", "/page.html/",
        "/..%2fpage.html",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["every", "by_folder"])
async def test_what_is_no_plain_file_is_asked_of_the_server_alone(
    request: pytest.FixtureRequest, server: Server, path: str, name: str
) -> None:
    server.says[path] = answering(200, b"by the server")

    response = await get(request.getfixturevalue(name), path)

    assert response.body == b"by the server"
    assert server.asked == [(path, False)]


@pytest.mark.parametrize(
    "trap", ["rules above", "rules", "mode", "executable", "link out", "empty", "too large"]
)
async def test_file_that_is_not_for_all_is_asked_of_the_server_alone(
    by_folder: RootedFetcher, server: Server, root: Path, trap: str
) -> None:
    await get(by_folder, "/docs/page.html")  # its kind is trusted from now on
    path = root / "docs" / "trap.html"
    path.write_bytes(PAGE)
    match trap:
        case "rules above":
            (root / ".htaccess").touch()
        case "rules":
            (root / "docs" / ".htaccess").touch()
        case "mode":
            path.chmod(0o640)
        case "executable":
            path.chmod(0o755)
        case "link out":
            path.unlink()
            path.symlink_to("/etc/hostname")
        case "empty":
            path.write_bytes(b"")
    server.asked.clear()

    response = await get(by_folder, "/docs/trap.html", max_bytes=100 if trap == "too large" else 10_000)

    assert response.body.startswith(b"by the server")
    assert server.asked == [("/docs/trap.html", False)]


async def test_first_of_a_kind_speaks_for_its_folder(by_folder: RootedFetcher, server: Server) -> None:
    first = await get(by_folder, "/page.html")
    second = await get(by_folder, "/other.html")

    assert (first.body, second.body) == (PAGE, PAGE)
    assert second.header("content-type") == "text/html; charset=utf-8"
    assert second.header("last-modified") == MODIFIED
    assert not second.header("etag")  # which is another one's
    assert (second.seconds, second.wire_bytes) == (0.0, 0)
    assert server.asked == [("/page.html", True)]


async def test_other_kinds_and_folders_are_judged_themselves(
    by_folder: RootedFetcher, server: Server, root: Path
) -> None:
    for name in ("page.de.html", "a.much-longer-name.html"):
        (root / name).write_bytes(PAGE)
        os.utime(root / name, (TIME, TIME))
    paths = ("/page.html", "/note.txt", "/docs/page.html", "/page.de.html", "/a.much-longer-name.html")

    for path in paths:
        await get(by_folder, path)

    assert server.asked == [(path, True) for path in paths[:4]]


async def test_nobody_else_speaks_for_a_link(by_folder: RootedFetcher, server: Server, root: Path) -> None:
    """Servers may follow none, or only those of some owners."""
    (root / "docs" / "link.html").symlink_to("page.html")
    (root / "docs" / "out.html").symlink_to("../page.html")
    for path in ("/docs/link.html", "/docs/out.html"):
        server.says[path] = answering(403)
    await get(by_folder, "/docs/page.html")

    statuses = [(await get(by_folder, path)).status for path in ("/docs/link.html", "/docs/out.html")]

    assert statuses == [403, 403]


SERVED_UNDER = {  # what servers read for a path that is no file, and what lies there
    "/report": "report.html",
    "/report?print=1": "report.htm",
    "/docs/report": "docs/report.xhtml",
    "/app": "app.php",
    "/notes": "notes.shtml",
    "/docs/": "docs/index.php",
    "/docs": "docs/index.xhtml",
    "/docs//repor%74": "docs/report.html",
    "/both": "both.html",  # beside a folder of this name
}


@pytest.mark.parametrize(("path", "name"), SERVED_UNDER.items())
async def test_link_that_the_server_reads_under_another_name_is_judged_by_where_it_leads(
    every: RootedFetcher, server: Server, root: Path, path: str, name: str
) -> None:
    for folder in ("private", "both"):
        (root / folder).mkdir()
    (root / "private" / "secret.html").write_text("secret")
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(root / "private" / "secret.html")
    server.says[path] = answering(200, b"secret")

    with pytest.raises(FetchError, match="leads to a path that is closed"):
        await get(every, path, closed=(ClosedPaths(("/private/",)),))

    assert server.asked == []
    assert (await get(every, path)).body == b"secret"  # as long as nothing is closed


async def test_file_that_the_server_reads_under_another_name_is_judged_by_its_own(
    every: RootedFetcher, server: Server, root: Path
) -> None:
    server.says |= {path: answering(200, b"page") for path in ("/other", "/third")}
    closed = (ClosedPaths(("/other.html", "/missing.html")),)

    with pytest.raises(FetchError, match="closed"):
        await get(every, "/other", closed=closed)

    assert (await get(every, "/third", closed=closed)).body == b"page"
    server.says["/missing"] = answering(404)
    assert (await get(every, "/missing", closed=closed)).status == 404


async def test_folder_that_becomes_a_link_is_judged_anew(
    by_folder: RootedFetcher, server: Server, root: Path
) -> None:
    await get(by_folder, "/docs/page.html")
    (root / "docs").rename(root / "moved")
    (root / "docs").symlink_to("moved")
    server.asked.clear()

    bodies = [(await get(by_folder, "/docs/page.html")).body for _ in range(2)]

    assert bodies == [PAGE, PAGE]
    assert server.asked == [("/docs/page.html", True)]


async def test_trust_ends(by_folder: RootedFetcher, server: Server, clock: Clock) -> None:
    await get(by_folder, "/page.html")
    clock.time += TRUST_SECONDS
    await get(by_folder, "/other.html")

    assert server.asked == [("/page.html", True), ("/other.html", True)]


async def test_refusal_speaks_for_nobody_else(by_folder: RootedFetcher, server: Server) -> None:
    server.says["/page.html"] = answering(403)

    statuses = [(await get(by_folder, path)).status for path in ("/page.html", "/other.html", "/third.html")]

    assert statuses == [403, 200, 200]
    assert server.asked == [("/page.html", True), ("/other.html", True)]


async def test_query_and_conditions_are_the_servers_to_judge(
    by_folder: RootedFetcher, server: Server
) -> None:
    await get(by_folder, "/page.html")
    server.says["/other.html?x=1"] = answering(302)
    server.says["/third.html"] = answering(304)

    assert (await get(by_folder, "/other.html?x=1")).status == 302
    assert (await get(by_folder, "/third.html", headers=(("If-None-Match", '"x"'),))).status == 304


async def test_request_that_may_be_cut_is_the_servers(every: RootedFetcher, server: Server) -> None:
    await get(every, "/page.html", may_cut=True)

    assert server.asked == [("/page.html", False)]
