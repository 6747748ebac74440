"""The status page of a host in a real browser."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.crawl.running import COMMAND
from tests.host.knocking import write_site
from tests.servers.browser import NARROW, open_browser, open_window, take_picture

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    write_site(tmp_path / "site")
    given = ["--site", "http://site.test", "--root", "site", "--check", "never", "--keys", "keys"]
    listens = ["--state", "state", "--listen", "127.0.0.1:0", "--page", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*COMMAND, "host", "run", *given, *listens], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        yield next(line.split()[1] for line in lines if line.startswith("page "))
    finally:
        process.kill()
        process.communicate()


def test_status_page_loads_nothing_and_complains_of_nothing(browser: Browser, address: str) -> None:
    with open_window(browser) as (page, seen):
        page.goto(address)
        assert page.get_by_role("heading", level=1).inner_text() == "Host of http://site.test"
        take_picture(page, "owner-wide")
        page.set_viewport_size(NARROW)
        take_picture(page, "owner-narrow", is_whole=True)
        assert seen.complaints == []
        assert seen.origins() == {address.rstrip("/")}
