"""What `deploy/` holds works with the real servers: a crawler goes through them to a real host and back."""

import asyncio
import json
import os
import re
import signal
import urllib.request
from array import array
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.crawl.running import call
from tests.host.deploying import DEPLOY, PAGES, STERNA, Deployed, behind, command_in_unit, travel

from sterna.errors import WireError
from sterna.model import Known
from sterna.wire.known import pack_known
from sterna.wire.stream import Ending, ParcelCame

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

RULE = '(defrule note (page (url ?url) (status 200)) => (log-line (str-cat "seen " ?url)) (keep))'
SLOW_SECONDS = 0.25


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One for all tests that name its kind."""
    with behind(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


everywhere = pytest.mark.parametrize("deployed", ["nginx", "apache", "cgi"], indirect=True)
behind_proxies = pytest.mark.parametrize("deployed", ["nginx", "apache"], indirect=True)


@pytest.fixture(params=["nginx", "apache", "cgi"])
def slow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployed]:
    """So slow that its stream can be watched."""
    with behind(request.param, tmp_path, delay_seconds=SLOW_SECONDS) as made:
        yield made


def test_crawler_goes_through_the_server_and_its_pages_come_as_they_are_found(slow: Deployed) -> None:
    trip = asyncio.run(travel(slow, rules=RULE))

    assert (trip.ending.pages, trip.ending.ended) == (PAGES, "finished")
    assert len(trip.lines) == PAGES  # its rules ran in a jailed cell
    assert trip.times(ParcelCame)[0] < trip.times(Ending)[0] - 1.0
    assert trip.is_live_only == (slow.folder / "programs").exists()


@everywhere
def test_order_of_some_megabytes_comes_through(deployed: Deployed) -> None:
    fingerprints = array("q", sorted(array("q", os.urandom(8 * 400_000))))
    packed = pack_known(Known(fingerprints.tobytes()))
    assert len(packed) > 2_000_000  # twice what nginx takes without a word

    assert asyncio.run(travel(deployed, known=packed)).ending.pages == PAGES


def test_killed_cgi_program_is_seen_as_cut_off_though_the_answer_ends_cleanly(tmp_path: Path) -> None:
    with behind("cgi", tmp_path, delay_seconds=SLOW_SECONDS) as deployed:
        trip = asyncio.run(travel(deployed, watch=lambda: kill_programs(deployed)))

    assert trip.times(ParcelCame)
    with pytest.raises(WireError, match="cut off"):
        trip.reader.finish()


def kill_programs(deployed: Deployed) -> None:
    """Kills the CGI programs that this Apache started."""
    program = str(deployed.folder / "programs" / "sterna")
    killed = [pid for pid in descendants(deployed.server_pid) if program in command_of(pid)]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


# -- what is for everybody, and what is for the owner ------------------------------------------------------


@everywhere
def test_sitemap_and_change_feed_are_served_once_the_index_is_made(deployed: Deployed) -> None:
    with pytest.raises(HTTPError, match="404"):
        get(f"{deployed.site}/sterna/sitemap.xml")

    indexed = call(command_in_unit("sterna-index.service", deployed)[len(STERNA) :])
    assert indexed.returncode == 0, indexed.stderr

    found = re.findall(r"<loc>(.*?)</loc>", get(f"{deployed.site}/sterna/sitemap.xml"))
    assert sorted(found) == sorted(
        [f"{deployed.site}/", *(f"{deployed.site}/{number}.html" for number in range(PAGES - 1))]
    )
    assert f"<name>{deployed.site}</name>" in get(f"{deployed.site}/sterna/changes.atom")


@behind_proxies
def test_status_page_is_at_its_own_address_and_not_behind_the_server(deployed: Deployed) -> None:
    assert deployed.site in get(f"http://127.0.0.1:{deployed.page_port}/")

    for path in ("", "status", "page", "control", "audit"):
        assert "visits" not in anything(f"{deployed.site}/sterna/{path}")


@behind_proxies
def test_log_of_the_server_is_one_from_which_receipts_are_drawn(deployed: Deployed) -> None:
    asyncio.run(travel(deployed))

    state, log = f"--state={deployed.folder / 'state'}", f"--log={deployed.log_path}"
    printed = call(["host", "receipts", state, log, "--json"]).stdout

    line = next(each for each in deployed.log_path.read_text().splitlines() if "/3.html" in each)
    assert line.startswith("127.0.0.1 ")
    assert '"Sterna/' in line  # the owner's name for crawlers, not the home's
    drawn = json.loads(printed)
    assert [each["home"] for each in drawn["homes"]] == ["ada"]
    assert drawn["log"]["lines"] > PAGES
    assert not drawn["log"]["bad_lines"]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def anything(url: str) -> str:
    """What is answered, whether it is a page or an error."""
    try:
        return get(url)
    except HTTPError as error:
        return error.read().decode()


def test_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()

    assert {path.name for path in DEPLOY.iterdir() if f"`{path.name}`" not in text} == {"README.md"}
