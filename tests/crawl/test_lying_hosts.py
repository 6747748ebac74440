"""Whole crawls of sites whose hosts lie, and of a real site whose host does not, in real processes."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.crawl.hosting import HostProcess, command
from tests.crawl.running import kill, rows, start, sterna, summary_of
from tests.servers.nginx import real_site, serve
from tests.servers.pages import Page, PageServer
from tests.servers.plain import Reply, Request

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A, LIAR = "127.0.7.1", "127.0.7.2"
PAGES = 200
OLD = {"Last-Modified": "Mon, 01 Jan 2018 00:00:00 GMT", "Content-Type": "text/html"}


def text(name: str, *links: str) -> str:
    words = " ".join(f"{name}{n}" for n in range(60))
    return f"<title>{name}</title><p>{words}</p>" + "".join(f'<a href="{link}">{link}</a> ' for link in links)


def site(altered: int = 0) -> dict[str, Page]:
    """A front page with all others, each with its neighbour; one in so many says something else."""
    pages = {"/": text("front", *(f"/{n}" for n in range(PAGES)))}
    for n in range(PAGES):
        is_altered = altered and n % altered == 0
        pages[f"/{n}"] = text(f"pills{n}" if is_altered else f"tern{n}", f"/{(n + 1) % PAGES}")
    return {path: Reply(headers=OLD, body=page.encode()) for path, page in pages.items()}


@contextmanager
def lying(folder: Path, lies: Mapping[str, Page]) -> Iterator[PageServer]:
    """The site, with a host that reads something else than its web server shows."""
    with ExitStack() as stack:
        server = stack.enter_context(PageServer({A: site(), LIAR: lies}).run_in_thread())
        host = HostProcess(server, A, folder, upstream=server.url(LIAR, ""))
        stack.callback(host.kill)
        yield server


def crawled(folder: Path, *arguments: str, check: str = "auto") -> tuple[dict[str, Any], list[str]]:
    """The summary, and the warnings."""
    result = sterna(*command(folder, check=check), *arguments)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return summary_of(result), [line["warning"] for line in lines if "warning" in line]


def titles(folder: Path) -> Counter[str]:
    """Of every page that counts: of several versions the last one."""
    found = rows(folder / "c", "SELECT arg_max(title, fetched) FROM t WHERE status = 200 GROUP BY url")
    return Counter(title.rstrip("0123456789") for (title,) in found)


def trust(folder: Path, *words: str) -> Any:
    result = sterna("trust", words[0], folder / "c", *words[1:], "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_host_that_alters_a_fifth_of_its_pages_is_found_out_and_nothing_of_it_is_used(tmp_path: Path) -> None:
    with lying(tmp_path, site(altered=5)) as server:
        url = server.url(A, "")
        summary, warnings = crawled(tmp_path, f"{url}/", check="strict")
        assert any(f"the host of {url} lied: " in line for line in warnings)
        assert titles(tmp_path) == {"front": 1, "tern": PAGES}
        assert summary["visits"] == {"here": 1, "host": 1}
        assert summary["checked"] >= 59

        (row,) = trust(tmp_path, "list")["hosts"]
        assert (row["site"], row["good"], row["is_trusted"]) == (url, 0.0, False)
        bad = [each for each in trust(tmp_path, "show", url)["samples"] if each["verdict"] == "altered"]
        assert len(bad) == row["bad"] > 0
        assert all(int(each["url"].rpartition("/")[2]) % 5 == 0 for each in bad)

        before = len(server.log)
        again, _ = crawled(tmp_path, "--refresh", "0")
        assert again["visits"] == {"here": 1, "host": 0}  # it is left alone
        assert all(hit.address == A for hit in server.log[before:])

        assert sterna("trust", "reset", tmp_path / "c", url).returncode == 0
        third, _ = crawled(tmp_path, "--refresh", "0")
        assert third["visits"]["host"] == 1  # unknown again


def test_believed_host_that_begins_to_lie_is_found_out_and_its_pages_are_fetched_again(
    tmp_path: Path,
) -> None:
    lies = site()
    with lying(tmp_path, lies) as server:
        url = server.url(A, "")
        for _ in range(4):
            summary, _ = crawled(tmp_path, f"{url}/", "--refresh", "0")
            assert summary["visits"] == {"here": 0, "host": 1}
        (row,) = trust(tmp_path, "list")["hosts"]
        assert row["is_trusted"]
        lies |= {path: Reply(headers=OLD, body=text("pills").encode()) for path in site() if path != "/"}
        summary, warnings = crawled(tmp_path, "--refresh", "0")
    assert any("lied" in line for line in warnings)
    assert summary["visits"] == {"here": 1, "host": 1}
    assert titles(tmp_path) == {"front": 1, "tern": PAGES}


def test_host_that_drops_pages_and_the_links_to_them_is_found_out(tmp_path: Path) -> None:
    lies = site()
    lies["/"] = Reply(headers=OLD, body=text("front", *(f"/{n}" for n in range(1, PAGES, 2))).encode())
    for n in range(1, PAGES, 2):
        lies[f"/{n}"] = Reply(headers=OLD, body=text(f"tern{n}", f"/{(n + 2) % PAGES}").encode())
    with lying(tmp_path, lies) as server:
        _, warnings = crawled(tmp_path, server.url(A))
    assert any("lied" in line for line in warnings)
    assert titles(tmp_path) == {"front": 1, "tern": PAGES}


class CloakingServer(PageServer):
    """Shows browsers a casino."""

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if "Mozilla" in request.headers.get("user-agent", ""):
            request = Request(request.method, request.target, request.headers, LIAR, request.connection)
        return await super()._answer(request, writer)


def test_site_that_shows_browsers_something_else_is_found_by_a_strict_check_alone(tmp_path: Path) -> None:
    casino = {path: Reply(headers=OLD, body=text(f"casino{n}").encode()) for n, path in enumerate(site())}
    with ExitStack() as stack:
        server = stack.enter_context(CloakingServer({A: site(), LIAR: casino}).run_in_thread())
        host = HostProcess(server, A, tmp_path)
        stack.callback(host.kill)
        _, warnings = crawled(tmp_path, server.url(A))
        assert warnings == []
        assert sterna("trust", "reset", tmp_path / "c", server.url(A)).returncode == 0
        _, warnings = crawled(tmp_path, "--refresh", "0", check="strict")
    assert any("for a browser" in line for line in warnings)


@dataclass
class Beside:
    """A real web server, as HostProcess wants it."""

    site: str
    sites: dict[str, dict[str, Page]] = field(default_factory=lambda: {"127.0.0.1": {}})

    def url(self, address: str, path: str = "/") -> str:
        return f"{self.site}{path}"


def test_honest_host_of_a_real_site_is_found_true_and_trusted_in_time(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nginx = stack.enter_context(serve(real_site("apache2-doc"), folder=tmp_path / "nginx"))
        host = HostProcess(cast(PageServer, Beside(nginx.url)), "127.0.0.1", tmp_path)
        stack.callback(host.kill)
        named = ("--host", f"{nginx.url}=http://127.0.0.1:{host.port}/sterna", "--include", "/en/")
        first, warnings = crawled(tmp_path, f"{nginx.url}/en/", *named, check="strict")
        assert (first["visits"], first["checked"], warnings) == ({"here": 0, "host": 1}, 59, [])
        second, warnings = crawled(tmp_path, "--refresh", "0")
        assert (second["visits"], warnings) == ({"here": 0, "host": 1}, [])
        assert 1 <= second["checked"] <= 4  # a proven host is sampled little, and never not at all
    told = trust(tmp_path, "show", nginx.url)
    assert {each["verdict"] for each in told["samples"]} == {"same"}
    assert (told["bad"], told["is_trusted"]) == (0.0, True)


def test_home_killed_while_results_wait_goes_on_with_them(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PageServer({A: site()}, latency_seconds=0.03).run_in_thread())
        host = HostProcess(server, A, tmp_path)
        stack.callback(host.kill)
        process = start(*command(tmp_path, check="auto"), server.url(A))
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size > 1_000 for path in (tmp_path / "c" / "waiting").glob("*")):
            assert time.monotonic() < deadline, "nothing ever waited"
            time.sleep(0.02)
        kill(process)
        assert titles(tmp_path) == {}
        server.latency_seconds = 0.0
        summary, warnings = crawled(tmp_path)
    assert (summary["visits"], warnings) == ({"here": 0, "host": 1}, [])
    assert titles(tmp_path) == {"front": 1, "tern": PAGES}
    hits = Counter(hit.path for hit in server.log if hit.path in site())
    assert sum(hits.values()) - len(hits) == summary["checked"] == 11  # nothing else was asked for twice
    assert list((tmp_path / "c" / "waiting").iterdir()) == []
