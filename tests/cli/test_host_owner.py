"""What an owner sees of his host and how he ends what he does not like, with a host that really runs."""

import asyncio
import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import COMMAND, sterna
from tests.forking import Forked
from tests.host.knocking import NAME, SITE, write_site
from tests.host.real import RealHost, real_host

from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.control import ControlRequest, Doors, ask
from sterna.host.owner.verification import verify
from sterna.model import Crawler, Ended
from sterna.web.clock import SystemClock
from sterna.wire.problems import decode_problem
from sterna.wire.stream import Ending, ProblemCame

SLOW = "delay_seconds = 0.25\nconnections = 1\n[load]\nmachine = 0\n"  # a visit takes a minute and more
QUICK = "[load]\nmachine = 0\n"
EVIL = "\x1b[2J\x1b]0;mine\x07evil\u202e"


async def under_way(host: RealHost, count: int = 1) -> list[dict[str, Any]]:
    """The visits of `sterna host status --json`, once so many have fetched some pages."""
    async with asyncio.timeout(30):
        while True:
            answer = await asyncio.to_thread(ask, host.state, ControlRequest("status"))
            assert answer.status
            visits = [each for each in answer.status.visits if each.state == "running"]
            if len(visits) == count and all(each.pages for each in visits):
                break
            await asyncio.sleep(0.1)
    result = await host.ask("status", "--json")
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["visits"]
    return found


async def test_owner_queries_a_crawler_also_beside_a_host_that_is_down(tmp_path: Path) -> None:
    count = ("SELECT count(*) AS pages, any_value(site) AS site FROM page", "-f", "csv")
    with real_host(tmp_path, policy=SLOW) as host:
        visit = asyncio.create_task(host.visit(crawler=Crawler(name="health")))
        await under_way(host)
        shown = (await host.ask("query", "health")).stdout
        unknown = await host.ask("query", "wealth")
        await host.ask("stop", "health")
        await visit
        rows = await host.ask("query", "v1", *count)
    beside = host.command("query", "v1", *count)
    assert shown.startswith(f"visit v1: crawler health at {SITE}, ")
    assert " in the frontier, " in shown
    assert unknown.returncode == 2
    assert "no crawler 'wealth' is kept here" in unknown.stderr
    assert rows.stdout == beside.stdout
    pages, site = rows.stdout.splitlines()[1].split(",")
    assert int(pages) > 0
    assert site == SITE


async def test_owner_sees_a_visit_against_its_limits_and_stops_it(tmp_path: Path) -> None:
    with real_host(tmp_path, policy=SLOW) as host:
        visit = asyncio.create_task(host.visit(crawler=Crawler(name="health")))
        (shown,) = await under_way(host)
        assert (shown["visit"], shown["name"], shown["crawler"]) == ("v1", NAME, "health")
        assert shown["limits"]["pages"] == 2_000
        table = (await host.ask("status")).stdout
        assert f"host of {SITE}" in table
        assert "crawlers 1 of 4" in table
        assert any(line.split()[:4] == ["v1", NAME, "health", "running"] for line in table.splitlines())
        assert " of 2,000" in table

        stopped = await host.ask("stop", "health")
        assert (stopped.returncode, stopped.stdout) == (
            0,
            f"stopped visit v1 of {NAME}: crawler health, until sterna host open\n",
        )
        last = (await visit)[-1]
        assert isinstance(last, Ending)
        assert last.ended is Ended.STOPPED  # softly: what it found is there, and signed
        assert last.pages > 0
        again = await host.ask("stop", "health")
        assert again.returncode == 2
        assert "no crawler 'health' is under way" in again.stderr
        assert (
            "stopped: crawler health, until sterna host open (the owner asks for it)"
            in (await host.ask("status")).stdout
        )

        summary = await host.ask("audit", "--json")
        assert summary.returncode == 0, summary.stdout
        told = json.loads(summary.stdout)
        assert told["is_whole"]
        events = {"host-started", "visit-taken", "visit-began", "owner-stopped", "visit-killed"}
        assert events <= set(told["events"])
        assert told["homes"][NAME]["visits"] == 1
        assert told["homes"][NAME]["pages"] == last.usage.pages


async def test_kill_switch_ends_all_and_lets_nobody_in_until_the_owner_opens(tmp_path: Path) -> None:
    with real_host(tmp_path, policy=SLOW) as host:
        visits = [asyncio.create_task(host.visit(visit=f"v{number}")) for number in range(3)]
        await under_way(host, 3)
        stopped = await host.ask("stop", "--all", "--reason", "an attack")
        assert stopped.returncode == 0, stopped.stderr
        assert "no home is admitted until sterna host open" in stopped.stdout
        async with asyncio.timeout(20):
            ends = [came[-1] for came in await asyncio.gather(*visits)]
        assert [end.ended for end in ends if isinstance(end, Ending)] == [Ended.STOPPED] * 3
        status, body, _ = await host.greet()
        assert (status, decode_problem(body).type.rpartition(":")[2]) == (503, "stopped")
        assert "doors closed: an attack" in (await host.ask("status")).stdout

        host.process.send_signal(signal.SIGTERM)
        host.restart()
        assert "an attack" in host.said("doors")
        assert (await host.greet())[0] == 503
        opened = await host.ask("open")
        assert "open again" in opened.stdout
        assert (await host.greet())[0] == 200
        assert (await host.ask("open")).stdout == "the doors are open\n"
        report = verify(host.state / AUDIT)
        assert report.is_whole
        assert (report.events["doors-closed"], report.events["doors-opened"]) == (1, 1)


async def test_closing_the_doors_by_the_file_alone_ends_visits_too(tmp_path: Path) -> None:
    with real_host(tmp_path, policy=SLOW) as host:
        visit = asyncio.create_task(host.visit())
        await under_way(host)
        Doors(host.state).close("by hand")
        async with asyncio.timeout(20):
            last = (await visit)[-1]
        assert isinstance(last, Ending | ProblemCame)
        status, _, _ = await host.greet()
        assert status == 503


def test_kill_switch_works_where_no_host_answers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    result = sterna("host", "stop", "--all", "--state", state)
    assert result.returncode == 0, result.stderr
    assert "no host answers" in result.stdout
    assert Doors(state).closure()
    assert verify(state / AUDIT).events == {"doors-closed": 1}
    shown = sterna("host", "status", "--state", state)
    assert shown.returncode == 1
    assert len(shown.stderr.splitlines()) == 1
    assert "its doors are closed" in shown.stderr


async def test_names_of_strangers_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    with real_host(tmp_path, "--page", "127.0.0.1:0", policy=SLOW) as host:
        visit = asyncio.create_task(host.visit(crawler=Crawler(name=EVIL)))
        await under_way(host)
        for words in (("status",), ("audit",)):
            out = (await host.ask(*words)).stdout
            assert all(char.isprintable() or char == "\n" for char in out), words
        assert r"\x1b[2J" in (await host.ask("status")).stdout
        page = await asyncio.to_thread(urllib.request.urlopen, host.said("page"), timeout=10)
        text = page.read().decode()
        assert r"\u001b[2J" in text
        assert "\x1b" not in text
        assert NAME in text
        assert "visit-began" in text
        visit.cancel()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_status_that_is_watched_goes_on(tmp_path: Path, is_terminal: bool) -> None:
    with real_host(tmp_path, policy=QUICK) as host:
        ours, theirs = os.openpty() if is_terminal else os.pipe()
        watch = Forked(
            [*COMMAND, "host", "status", "--watch", "--state", host.state],
            stdout=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
        )
        os.close(theirs)
        seen = b""
        while seen.count(SITE.encode()) < 3:
            seen += os.read(ours, 1 << 16)
        assert (b"\x1b[?1049h" in seen) is is_terminal  # a screen of its own, so that nothing is overwritten
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
        os.close(ours)


# -- the audit log -----------------------------------------------------------------------------------------


def test_changed_log_is_told_in_words_and_by_the_exit_code(tmp_path: Path) -> None:
    audit = Audit(tmp_path / AUDIT, clock=SystemClock())
    for number in range(4):
        audit.note("visit-ended", home="ada", pages=number)
    good = sterna("host", "audit", "--state", tmp_path)
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith(f"the audit log is whole: {AUDIT}\n")
    head = next(line.split()[1] for line in good.stdout.splitlines() if line.strip().startswith("head"))
    assert "4 visits, 6 pages" in good.stdout
    assert sterna("host", "audit", "--state", tmp_path, "--expect", head).returncode == 0
    audit.path.write_bytes(audit.path.read_bytes().replace(b'"pages":1', b'"pages":7'))
    bad = sterna("host", "audit", "--state", tmp_path)
    assert bad.returncode == 1
    assert f"  {AUDIT}, line 2: was changed: the hash in line 3 does not match it" in bad.stdout
    assert sterna("host", "audit", "--state", tmp_path, "--expect", "x").returncode == 2
    nothing = sterna("host", "audit", "--state", tmp_path.parent)
    assert nothing.returncode == 6
    assert "there is no audit log" in nothing.stderr


def test_host_refuses_to_start_without_its_log(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    (tmp_path / "state" / AUDIT).mkdir(parents=True)
    given = ("--site", SITE, "--root", tmp_path / "site", "--check", "never", "--listen", "127.0.0.1:0")
    result = sterna("host", "run", *given, "--keys", tmp_path / "keys", "--state", tmp_path / "state")
    assert result.returncode == 6
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "audit log" in result.stderr
    assert "cannot write" in result.stderr


async def test_killed_host_leaves_a_log_that_the_next_one_goes_on_with(tmp_path: Path) -> None:
    with real_host(tmp_path, policy=SLOW) as host:
        visit = asyncio.create_task(host.visit())
        await under_way(host)
        os.kill(host.process.pid, signal.SIGKILL)
        with pytest.raises(Exception):  # noqa: B017 - its stream is cut off, however that shows
            await visit
        with (host.state / AUDIT).open("ab") as file:
            file.write(b'{"n":99,"time"')  # as if it had been writing
        host.restart()
        host.process.send_signal(signal.SIGTERM)
        host.process.wait(30)
        report = verify(host.state / AUDIT)
        assert report.is_whole
        assert (report.events["host-started"], report.events["host-stopped"]) == (2, 1)
        assert report.events["line-torn"] == 1


# -- which host is meant -----------------------------------------------------------------------------------


def test_host_is_found_without_being_named_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    none = sterna("host", "open")
    assert none.returncode == 2
    assert "there is no host in" in none.stderr
    Doors(tmp_path / "sterna" / "site.test").close()
    assert "open again" in sterna("host", "open").stdout
    Doors(tmp_path / "sterna" / "other.test_8080").close()
    Doors(tmp_path / "sterna" / "site.test").close()
    many = sterna("host", "open")
    assert many.returncode == 2
    assert "there is more than one host" in many.stderr
    assert "open again" in sterna("host", "open", "--site", "http://other.test:8080").stdout
    assert Doors(tmp_path / "sterna" / "site.test").closure()


@pytest.mark.parametrize(
    "words", [("stop",), ("stop", "x", "--all"), ("status", "--state", "/nowhere/at/all")]
)
def test_wrong_words_are_answered_in_one_line(words: tuple[str, ...]) -> None:
    result = sterna("host", *words)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("address", ["0.0.0.0:8471", "192.0.2.1:80", "example.org:80"])
def test_page_is_shown_to_this_machine_only(tmp_path: Path, address: str) -> None:
    words = ("--keys", tmp_path / "k", "--state", tmp_path / "s", "--listen", "127.0.0.1:0")
    result = sterna("host", "run", "--site", SITE, *words, "--page", address)
    assert result.returncode == 2
    assert "it must be on this machine" in result.stderr
