"""A site crawled with what its pages need, visited again after a change, and replayed at all moments."""

import gzip
import hashlib
import json
import subprocess
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.crawl.running import crawl_here
from tests.export.exported import export
from tests.servers.pages import Page, PageServer
from tests.servers.plain import Reply

from sterna.web.clock import SystemClock

pytestmark = pytest.mark.servers

A, CDN = "127.0.2.1", "127.0.2.2"


def reply(body: str | bytes, kind: str, tag: str = "1") -> Reply:
    data = body if isinstance(body, bytes) else body.encode()
    return Reply(headers={"Content-Type": kind, "ETag": f'"{tag}"'}, body=data)


def site_of(changing: str, *, tag: str) -> dict[str, dict[str, Page]]:
    home = (
        '<link rel=stylesheet href="/style.css"><img src="/a.png" srcset="/big.png 2x, /huge.png 9x">'
        f'<script src="http://{CDN}:{{port}}/lib.js"></script><p style="background: url(/back.png)">'
        '<a href="/changing">next</a>'
    )
    return {
        A: {
            "/": reply(home, "text/html"),
            "/changing": reply(f"<p>{changing}</p><img src=/a.png>", "text/html", tag),
            "/style.css": reply("@font-face { src: url('/font.woff2') }", "text/css"),
            "/font.woff2": reply(b"font", "font/woff2"),
            **{f"/{name}.png": reply(name, "image/png") for name in ("a", "big", "huge", "back")},
        },
        CDN: {"/lib.js": reply("run()", "text/javascript")},
    }


@dataclass
class Crawled:
    """The collection, and what its server answers to a conditional and to a first request."""

    folder: Path
    server: PageServer


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawled]:
    folder = tmp_path_factory.mktemp("replay") / "c"
    sites = site_of("first", tag="1")
    with PageServer(sites).run_in_thread() as server:
        url = server.url(A)
        for visit in range(3):
            began = 1_800_000_000.0 + 3600 * visit - time.monotonic()
            # Replay tells captures of one URL apart by the second.
            with patch.object(SystemClock, "now", lambda _, began=began: began + time.monotonic()):
                refresh = 0.0 if visit else None
                crawl_here(folder, url, warc=True, requisites=True, allow_private=True, refresh=refresh)
            unchanged = {path: Reply(304, {"ETag": '"1"'}) for path in sites[A]}
            sites[A] |= unchanged
            sites[CDN] = {"/lib.js": Reply(304, {"ETag": '"1"'})}
            sites[A]["/changing"] = Reply(304) if visit else site_of("second", tag="2")[A]["/changing"]
        yield Crawled(folder, server)


def pywb_python() -> str:
    """The Python of an environment that has pywb: its brotli would replace ours in any other."""
    python = Path(__file__).parents[2] / ".pywb/bin/python"
    if not python.exists():
        raise FileNotFoundError(f"{python} is not here: run scripts/install-pywb")
    return str(python)


def lines_of(package: zipfile.ZipFile) -> list[tuple[str, dict[str, str]]]:
    """The captures of the index, each with its moment, the earliest first."""
    text = gzip.decompress(package.read("indexes/index.cdx.gz")).decode()
    parts = (line.split(" ", 2) for line in text.splitlines())
    return sorted(((moment, json.loads(fields)) for _, moment, fields in parts), key=lambda each: each[0])


def test_every_page_and_picture_replays_at_every_moment(crawled: Crawled, tmp_path: Path) -> None:
    package = zipfile.ZipFile(export(crawled.folder, "wacz", tmp_path / "c.wacz"))
    package.extractall(tmp_path)
    index = export(crawled.folder, "cdxj", tmp_path / "index.cdxj")
    captures = [(moment, fields["url"]) for moment, fields in lines_of(package)]
    asked = json.dumps(captures)
    command = [pywb_python(), str(Path(__file__).with_name("replaying.py")), str(tmp_path), str(index)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=120)
    replayed = json.loads(done.stdout.splitlines()[-1])
    assert len(captures) == 3 * 8
    port = crawled.server.port
    for (_, url), number, (status, digest) in zip(captures, _numbers(captures), replayed, strict=True):
        pages = site_of("second" if number else "first", tag="")
        address, _, path = url.removeprefix("http://").partition(f":{port}")
        answer = pages[address][path]
        assert isinstance(answer, Reply)
        expected = answer.body.replace(b"{port}", str(port).encode())
        assert (url, status, digest) == (url, "200 OK", hashlib.sha256(expected).hexdigest())


def _numbers(captures: list[tuple[str, str]]) -> Iterator[int]:
    """How many captures of its URL come before each."""
    seen: dict[str, int] = {}
    for _, url in captures:
        seen[url] = seen.get(url, -1) + 1
        yield seen[url]
