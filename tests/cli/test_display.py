"""What is said of a crawl while it runs, after it, and while what follows it is waited for."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sterna.cli.display import Display, JsonDisplay, LineDisplay, LiveDisplay, Meter, report
from sterna.cli.lines import LINE_SECONDS, date_text
from sterna.home.folder import CollectionFolder
from sterna.home.progress import Progress, Summary
from sterna.model import Usage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be changed by a test."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_log_gets_a_line_now_and_then(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    display = LineDisplay()
    for seconds in range(int(2.5 * LINE_SECONDS)):
        clock[0] = 1000.0 + seconds
        display.wait_for(f"indexing: {30 - seconds} pages left\x1b[31m")
    display.wait_for("")
    shown = (30 - LINE_SECONDS, 30 - 2 * LINE_SECONDS)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"indexing: {count:g} pages left\\x1b[31m" for count in shown]


def test_terminal_has_one_line_that_changes_and_goes(capsys: pytest.CaptureFixture[str]) -> None:
    display = LiveDisplay()
    display.wait_for("indexing: 2 pages left")
    display.wait_for("x" * 1_000)
    display.wait_for("")
    _, first, second, last = capsys.readouterr().err.split("\r\x1b[2K")
    assert (first, last) == ("indexing: 2 pages left", "")
    assert 10 < len(second) < 1_000, "it would not fit into a line"


def test_script_gets_json_and_who_wants_quiet_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for display in (JsonDisplay(), Display()):
        display.wait_for("indexing: 2 pages left")
        display.wait_for("")
    out, err = capsys.readouterr()
    assert ([json.loads(line) for line in out.splitlines()], err) == (
        [{"waiting": "indexing: 2 pages left"}],
        "",
    )


def test_first_line_of_a_log_has_the_rate_since_the_crawl_began(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    display, progress = LineDisplay(), Progress(began=0.0)
    meter = Meter()
    clock[0] += LINE_SECONDS
    progress.count(Usage(pages=20))
    progress.pending = 40
    display._show(progress, meter)
    assert "a second 2.0" in capsys.readouterr().err


def summary(**fields: Any) -> Summary:
    counts: dict[str, Any] = dict.fromkeys(
        ("pages", "requests", "bytes_received", "seconds", "pages_per_second", "peak_memory_bytes"), 1
    )
    more: dict[str, Any] = dict.fromkeys(
        ("unchanged", "redirects", "sites", "pending", "waiting_sites", "total_pages"), 1
    )
    return Summary(**counts, **more, errors={}, visits={}, next_turn=None, collection="c", **fields)


@pytest.mark.parametrize(
    ("ended", "is_own", "words"),
    [
        ("wall_seconds", True, "its limit of wall_seconds is reached"),
        ("wall_seconds", False, "its rules took too long for one page"),
        ("memory_bytes", False, "its rules needed more memory than the sandbox has: see budget.memory_bytes"),
        ("requests", False, "a host's limit of requests is reached"),
        ("crash", False, "its rule engine crashed"),
    ],
)
def test_report_names_no_limit_that_nobody_set(tmp_path: Path, ended: str, is_own: bool, words: str) -> None:
    lines = report(summary(ended=ended, has_own_limit=is_own), CollectionFolder(tmp_path))
    assert f"the crawler was ended: {words}" in lines


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pages": 12, "kept": 6, "unchanged": 0}, "6 of 12 were not wanted; failed: a word of tern (6)"),
        ({"pages": 12, "kept": 11, "unchanged": 0}, "1 of 12 was not wanted; failed: a word of tern (6)"),
        ({"pages": 12, "kept": 11, "unchanged": 7}, "1 of the 5 that came anew was not wanted; failed: "),
    ],
)
def test_report_says_how_many_pages_were_not_wanted(
    tmp_path: Path, fields: dict[str, int], words: str
) -> None:
    told = summary(ended="finished", unmet={"a word of tern": 6})
    lines = report(replace(told, **fields), CollectionFolder(tmp_path))
    assert any(line.startswith(words) for line in lines)


def test_report_counts_in_english_and_its_queries_are_whole_commands(tmp_path: Path) -> None:
    told = summary(ended="stopped", kept=1, notes={"empty": 1}, left_out=1)
    lines = report(replace(told, unchanged=0), CollectionFolder(tmp_path))
    assert lines[0].startswith("1 page in 1.0 s")
    assert f"""1 page had neither text nor links; see which: sterna query {tmp_path} "SELECT""" in lines[2]
    assert "1 link left out by --include, --exclude or --subtree" in lines
    assert any(line.startswith("stopped cleanly with 1 URL to go") for line in lines)


def test_display_says_which_site_waits_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    progress = Progress(began=0.0)
    progress.notices.pause("https://a.test", "asked for a pause (HTTP 503)", until=1030.0)
    progress.notices.pause("https://b.test", "asked for a pause (HTTP 429)", until=1020.0)
    progress.notices.pause("https://c.test", "asked for a pause (HTTP 429)", until=999.0)
    words = (
        f"waiting: https://a.test asked for a pause (HTTP 503), until {date_text(1030.0)}, and 1 more site"
    )
    LineDisplay()._show(progress, Meter())
    assert words in capsys.readouterr().err
    JsonDisplay()._show(progress, Meter())
    assert json.loads(capsys.readouterr().out)["progress"]["waiting"] == [words]
