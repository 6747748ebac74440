"""`sterna host check`: a policy in words, and where it is broken."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.knocking import SITE
from tests.host.policy.test_policy_file import FULL, KEY
from tests.host.real import real_host

from sterna.errors import UsageError
from sterna.host.owner.audit import AUDIT
from sterna.host.policy.explanation import explain
from sterna.host.policy.policy import Policy, read_policy

MONDAY_NIGHT = 1_793_586_600.0  # Mon 2 Nov 2026 03:30 in Vienna


def words(text: str, folder: Path, *, allowed: dict[str, str] | None = None, home: str = "") -> str:
    path = folder / "policy.toml"
    path.write_text(text)
    return "\n".join(explain(read_policy(path), allowed or {}, at=MONDAY_NIGHT, home=home))


def test_policy_is_said_in_words(tmp_path: Path) -> None:
    said = words(FULL, tmp_path)
    assert "time      Mon 02 Nov 2026 03:30 CET (Europe/Vienna)" in said
    assert "open      to the homes below; everybody else is refused" in said
    assert "engine-a: may come now, until Mon 02 Nov 2026 04:00 CET" in said
    assert "Mon 00:00-04:00; outside of them kept and run later, its parcels wait for home" in said
    assert "a visit is paused while other work takes more than 25% of the machine, until below 20%" in said
    assert "and while the web server answers / more than 40 ms later than when the load is low" in said
    assert "  visit     500 pages, 3,600 s" in said
    assert "  day       9 visits, 5,000 pages" in said
    assert "robots.txt is ignored" in said
    assert "/intranet/, /drafts/" in said
    assert "engine-c: never" in said
    assert "promising priority 7 or more: 9,000 pages, 60 s" in said
    assert said.endswith(
        "next change: Mon 02 Nov 2026 04:00 CET, the hours of engine-a end: a visit that runs then is paused"
    )


def test_one_home_is_said_alone(tmp_path: Path) -> None:
    said = words(FULL, tmp_path, home="engine-a")
    assert "engine-a: may come now" in said
    assert "engine-c" not in said
    with pytest.raises(UsageError, match=r"unknown home 'bob'.*engine-a, engine-c"):
        words(FULL, tmp_path, home="bob")


def test_table_without_a_home_is_noticed(tmp_path: Path) -> None:
    text = "[homes.engine-b]\nhours = ['Tue 00:00-04:00']\n"
    assert "key       none: sterna keys allow KEY --name engine-b" in words(text, tmp_path)
    assert "key       none" not in words(text, tmp_path, allowed={KEY.text: "engine-b"})


def test_policy_for_nobody_says_how_to_allow_somebody() -> None:
    said = explain(Policy(), {}, at=MONDAY_NIGHT)
    assert "open      to nobody yet: sterna keys allow KEY --name NAME" in said
    assert "any other that is allowed: may come now" in said


def test_policy_for_everybody_says_so(tmp_path: Path) -> None:
    said = words("open = 'everybody'\nhours = ['Tue 00:00-04:00']", tmp_path)
    assert "to everybody" in said
    assert "everybody else: not now: refused until Tue" in said


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "sterna",
        "host",
        "check",
        *arguments,
        "--keys",
        str(folder / "keys"),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_command_explains_and_refuses(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(FULL)
    (tmp_path / "bad.toml").write_text("[load]\nmachine = 2\n")
    good = check(tmp_path, "good.toml", "--home", "engine-a", "--at", "2026-11-03 12:00")
    assert (good.returncode, good.stderr) == (0, "")
    assert (
        "engine-a: not now: its crawler is kept until Mon 09 Nov 2026 00:00 CET, and then run" in good.stdout
    )
    bad = check(tmp_path, "bad.toml")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert (
        bad.stderr
        == "sterna: bad.toml, line 2, load.machine: 2.0 is out of range (a share of the cores, 0 to 1)\n"
    )
    wrong = check(tmp_path, "good.toml", "--at", "soon")
    assert wrong.returncode == 2
    assert "--at soon is invalid" in wrong.stderr


def test_host_with_a_broken_policy_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('zone = "UTC"\nhours = ["Mon"]\n')
    folders = ["--keys", "keys", "--state", "state", "--policy", "bad.toml"]
    command = [sys.executable, "-m", "sterna", "host", "run", "--site", SITE, *folders]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("sterna: bad.toml, line 2, hours: malformed hours 'Mon'")


def write_whole(path: Path, text: str) -> None:
    """As editors do: nobody sees half of it."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def test_host_that_runs_says_what_became_of_a_change(tmp_path: Path) -> None:
    with real_host(tmp_path, policy="connections = 2\n") as host:
        assert host.process.stdout
        write_whole(tmp_path / "policy.toml", "connections = 2000\n")
        said = host.process.stdout.readline()
        assert (
            "line 1, connections: 2000 is out of range (1 to 64); the previous policy stays in force" in said
        )
        write_whole(tmp_path / "policy.toml", "connections = 20\n")
        assert "policy.toml has changed and is in force from now on" in host.process.stdout.readline()
    events = [json.loads(line)["event"] for line in (tmp_path / "state" / AUDIT).read_text().splitlines()]
    assert events == ["host-started", "policy-broken", "policy-changed"]
