"""What is said while what follows a crawl is waited for."""

import json
import time

import pytest

from sterna.cli.display import Display, JsonDisplay, LineDisplay, LiveDisplay
from sterna.cli.lines import LINE_SECONDS


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
