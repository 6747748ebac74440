"""`sterna host receipts` as an owner meets it."""

import gzip
import json
import time
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from tests.crawl.running import sterna
from tests.host.owner.test_host_receipts import HOME, HOST, receipt

from sterna.host.owner.receipts import Receipts
from sterna.host.state import open_state
from sterna.wire.keys import Identity

DAY = 86_400.0
OTHER = Identity(bytes([5]) * 32)
FIRST = time.time() - 5 * DAY


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A host's folder with three receipts of two homes, two of them signed by both."""
    folder = tmp_path / "state"
    folder.mkdir()
    kept = Receipts(open_state(folder), HOST)
    for number, (name, home) in enumerate((("ada", HOME), ("ada", HOME), ("bob", OTHER))):
        began = FIRST + number * DAY
        made = kept.sign(receipt(f"v{number}", home=home.public.data, began=began, over=began + 9))
        kept.note(made.countersign(home) if number else made, name=name, agent="Tern/1 (+mailto:a@b)")
    return folder


def line(days: float, agent: str = "Tern/1 (+mailto:a@b)", client: str = "203.0.113.7") -> bytes:
    at = datetime.fromtimestamp(FIRST + days * DAY).astimezone().strftime("%d/%b/%Y:%H:%M:%S %z")
    return f'{client} - - [{at}] "GET / HTTP/1.1" 200 5000 "-" "{agent}"\n'.encode()


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    old, new = tmp_path / "access.log.1.gz", tmp_path / "access.log"
    old.write_bytes(gzip.compress(line(-3) * 200 + line(-2) * 300 + b"\xff\0rubbish\n"))
    new.write_bytes(
        line(0) + line(1) * 2 + line(2) + line(2, client="127.0.0.1") * 30 + line(1, "Mozilla/5.0")
    )
    return [old, new]


def test_receipts_are_summed_by_home_and_day(state: Path) -> None:
    result = sterna("host", "receipts", "--state", state)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [each.split() for each in result.stdout.splitlines()]
    days = [str(datetime.fromtimestamp(FIRST + number * DAY).date()) for number in range(3)]
    assert [each[:2] for each in lines[1:4]] == [["ada", days[0]], ["ada", days[1]], ["bob", days[2]]]
    assert " ".join(lines[1][2:]) == "1 0 by both 10 12 5.0 kB 1.0 kB 0.5 s 10 requests 4.0 kB"
    assert " ".join(lines[2][2:]) == "1 both 10 12 5.0 kB 1.0 kB 0.5 s 10 requests 4.0 kB"
    assert " ".join(lines[-1]) == "all 3 2 by both 30 36 15.0 kB 3.0 kB 1.5 s 30 requests 12.0 kB"


def test_log_shows_before_and_after(state: Path, logs: list[Path]) -> None:
    words = [word for path in logs for word in ("--log", path)]
    result = sterna("host", "receipts", "--state", state, *words)
    assert result.returncode == 0
    assert "requests of Tern (ada, bob); first visit at the host: " in result.stdout
    assert "  before  250.0 requests, 1.2 MB a day (2 days)" in result.stdout
    assert "  after   1.5 requests, 7.5 kB a day (2 days)" in result.stdout
    assert "  change  99.4% fewer requests, 99.4% fewer bytes" in result.stdout
    assert "#" * 40 in result.stdout  # plain where it is not a terminal
    assert "█" not in result.stdout
    assert "log: 536 lines, 1 passed over" in result.stdout
    assert "log: 30 requests by the host and crawlers at it: not counted" in result.stdout


def test_scripts_get_json(state: Path, logs: list[Path]) -> None:
    result = sterna("host", "receipts", "--state", state, "--json", "--log", logs[0], "--log", logs[1])
    answer = json.loads(result.stdout)
    assert (answer["total"]["visits"], answer["total"]["countersigned"]) == (3, 2)
    assert [each["home"] for each in answer["days"]] == ["ada", "ada", "bob"]
    assert [each["agent"] for each in answer["comparisons"]] == ["Tern", ""]
    assert answer["comparisons"][0]["before"] == {"days": 2, "requests": 500, "size_bytes": 2_500_000}
    assert answer["log"]["bad_lines"] == 1


def test_picture_is_drawn_into_a_file(state: Path, logs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    result = sterna("host", "receipts", "--state", state, "--log", logs[0], "--log", logs[1], "--svg", file)
    assert result.returncode == 0
    root = Xml.fromstring(file.read_text())
    bars = [each for each in root.iter() if each.get("class") in ("a", "b", "f")]
    assert len(bars) == 2 * 5
    nowhere = sterna("host", "receipts", "--state", state, "--svg", tmp_path / "no" / "where.svg")
    assert (nowhere.returncode, len(nowhere.stderr.splitlines())) == (2, 1)


def test_host_without_receipts_says_so(tmp_path: Path) -> None:
    result = sterna("host", "receipts", "--state", tmp_path)
    assert (result.returncode, result.stdout) == (0, "no receipts yet: they come with the first visit\n")


def test_changed_line_is_said(state: Path) -> None:
    with open_state(state).transaction() as db:
        db.execute("UPDATE receipt SET by_host = x'00' WHERE visit = 'v0'")
    result = sterna("host", "receipts", "--state", state)
    assert "1 line of the file unreadable or changed" in result.stdout


def test_name_that_colours_terminals_does_not(tmp_path: Path) -> None:
    kept = Receipts(open_state(tmp_path), HOST)
    kept.note(kept.sign(receipt()), name="\x1b[31mred", agent="\x1b]0;title\x07/1")
    result = sterna("host", "receipts", "--state", tmp_path)
    assert "\x1b" not in result.stdout
    assert "red" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--log", "nowhere.log"), "cannot read log nowhere.log"),
        (("--log", "."), "cannot read log ."),
    ],
)
def test_wrong_flags_are_answered_in_one_line(state: Path, words: tuple[str, ...], said: str) -> None:
    result = sterna("host", "receipts", "--state", state, *words)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert said in result.stderr
