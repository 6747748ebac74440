"""An archive of three visits shown by ReplayWeb.page in a browser: each moment whole, as it was."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

import pytest
from playwright.sync_api import Frame, Page
from tests.crawl.running import crawl_here
from tests.export.exported import export
from tests.servers.browser import open_browser, open_window
from tests.servers.pages import PageServer
from tests.servers.plain import Reply

from sterna.web.clock import SystemClock

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
A, CDN = "127.0.2.3", "127.0.2.4"
BEGAN = 1_800_000_000  # 2027-01-15 08:00:00
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="37" height="21"><rect width="37" height="21"/></svg>'
HOST = """<!doctype html><title>Replay</title><script src="/ui.js"></script>
<replay-web-page source="/c.wacz" url="{url}" ts="{moment}" embed="replayonly"></replay-web-page>"""
SHOWN = """() => ({
    text: document.querySelector("p").textContent,
    color: getComputedStyle(document.querySelector("p")).color,
    width: document.querySelector("img").naturalWidth,
    script: document.title,
})"""


def reply(body: str, kind: str, tag: str = "1") -> Reply:
    return Reply(headers={"Content-Type": kind, "ETag": f'"{tag}"'}, body=body.encode())


def page(words: str, tag: str) -> Reply:
    head = f'<link rel=stylesheet href="/style.css"><script src="http://{CDN}:{{port}}/lib.js"></script>'
    return reply(f"<!doctype html>{head}<p>{words}</p><img src=/tern.svg>", "text/html", tag)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The URL of the page, and a package of what three visits brought: another text came with the second."""
    folder = tmp_path_factory.mktemp("replay-browser")
    sites = {
        A: {
            "/": page("the first text", "1"),
            "/style.css": reply("p { color: rgb(1, 2, 3) }", "text/css"),
            "/tern.svg": reply(SVG, "image/svg+xml"),
        },
        CDN: {"/lib.js": reply('document.title = "a script ran"', "text/javascript")},
    }
    with PageServer(sites).run_in_thread() as server:
        for visit in range(3):
            began = BEGAN + 3600 * visit - time.monotonic()
            with patch.object(SystemClock, "now", lambda _, began=began: began + time.monotonic()):
                refresh = 0.0 if visit else None
                crawl_here(
                    folder / "c",
                    server.url(A),
                    warc=True,
                    requisites=True,
                    allow_private=True,
                    refresh=refresh,
                )
            sites[A] |= {path: Reply(304, {"ETag": '"1"'}) for path in sites[A]}
            sites[CDN] = {"/lib.js": Reply(304, {"ETag": '"1"'})}
            sites[A]["/"] = Reply(304) if visit else page("the second text", "2")
        return server.url(A), export(folder / "c", "wacz", folder / "c.wacz")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """What a visitor of the archive gets: ReplayWeb.page, its worker, the package, a page for each moment."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def opened(window: Page, place: str, *, url: str) -> Frame:
    """The frame in which the archived page is shown.

    On a busy machine the player's worker may start after its page asked for it: like a visitor, we reload.
    """
    for _ in range(4):
        window.goto(place)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for frame in window.frames:
                if frame.url.endswith(f"/{url}") and "mp_" in frame.url:
                    return frame
            window.wait_for_timeout(100)
    raise TimeoutError([frame.url for frame in window.frames])


@pytest.mark.timeout(300)
def test_page_is_shown_with_style_picture_and_script_at_each_moment(
    archive: tuple[str, Path], tmp_path: Path
) -> None:
    url, package = archive
    player = ROOT / ".replayweb"
    if not player.exists():
        raise FileNotFoundError(f"{player} is not here: run scripts/install-replayweb")
    (tmp_path / "replay").mkdir()
    (tmp_path / "ui.js").symlink_to(player / "ui.js")
    (tmp_path / "replay" / "sw.js").symlink_to(player / "sw.js")
    (tmp_path / "c.wacz").symlink_to(package)
    texts = {"20270115080000": "first", "20270115090000": "second", "20270115100000": "second"}
    for moment in texts:
        (tmp_path / f"{moment}.html").write_text(HOST.format(url=url, moment=moment))
    with served(tmp_path) as base, open_browser() as browser:
        for moment, words in texts.items():
            with open_window(browser) as (window, seen):
                frame = opened(window, f"{base}/{moment}.html", url=url)
                frame.wait_for_function("document.title && document.querySelector('img')?.complete")
                assert frame.evaluate(SHOWN) == {
                    "text": f"the {words} text",
                    "color": "rgb(1, 2, 3)",
                    "width": 37,
                    "script": "a script ran",
                }
                assert seen.origins() <= {base}
