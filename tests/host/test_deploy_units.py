"""systemd takes the units of `deploy/`, and they leave little open; what a container starts, starts."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.deploying import DEPLOY, STERNA, make_site, snippet, started
from tests.servers.nginx import free_ports

from sterna.host.policy.policy import Policy, read_policy

pytestmark = [pytest.mark.servers, pytest.mark.timeout(60)]

SERVICES = ("sterna-host.service", "sterna-index.service")
UNITS = (*SERVICES, "sterna-index.timer")
MOST_EXPOSURE = 1.5  # of 10, as systemd counts


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """Copies that start a program which is here."""
    for name in UNITS:
        changes = {"/opt/sterna/bin/sterna": sys.executable} if name in SERVICES else {}
        (tmp_path / name).write_text(snippet(name, **changes))
    return [tmp_path / name for name in UNITS]


def test_units_are_ones_that_systemd_takes(units: list[Path]) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )

    ours = [line for line in done.stderr.splitlines() if "sterna" in line]
    assert (ours, done.returncode) == ([], 0)


@pytest.mark.parametrize("name", SERVICES)
def test_unit_leaves_little_open(units: list[Path], name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(units[UNITS.index(name)])],
        capture_output=True,
        text=True,
        check=False,
    )

    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSURE, done.stdout


def test_unit_that_drops_a_wall_is_seen(units: list[Path]) -> None:
    unit = units[0]
    unit.write_text(unit.read_text().replace("SystemCallFilter=", "#").replace("ProtectSystem=", "#"))

    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found
    assert float(found[1]) > MOST_EXPOSURE


def test_policy_is_one_that_a_host_reads() -> None:
    policy = read_policy(DEPLOY / "policy.toml")

    assert policy == Policy(closed=("/internal/", "/intranet/"))


# -- the container, without its engine ---------------------------------------------------------------------


def words_of(name: str, text: str) -> list[str]:
    """The arguments of the last instruction of this name, in its form of a list."""
    found = re.findall(rf"^{name} (\[.*\])$", text.replace("\\\n", " "), re.MULTILINE)
    words: list[str] = json.loads(found[-1])
    return words


def test_container_starts_a_host_which_its_health_check_finds(tmp_path: Path) -> None:
    make_site(tmp_path)
    (port,) = free_ports(1)
    changes = {
        "127.0.0.1:8470": f"127.0.0.1:{port}",
        "/var/lib/sterna/": f"{tmp_path}/",
        "https://www.example.org": "http://127.0.0.1:9",
    }
    text = snippet("Containerfile", **changes)
    entry, arguments = words_of("ENTRYPOINT", text), words_of("CMD", text)
    (check,) = re.findall(r"^HEALTHCHECK.*? CMD (\[.*\])$", text.replace("\\\n", " "), re.MULTILINE)
    healthy = [sys.executable, *json.loads(check)[1:]]
    assert (entry[0], json.loads(check)[0]) == ("sterna", "python3")

    with started([*STERNA, *entry[1:], *arguments, "--root", str(tmp_path / "site"), "--check", "never"]):
        assert subprocess.run(healthy, capture_output=True, check=False).returncode == 0

    assert subprocess.run(healthy, capture_output=True, check=False).returncode != 0


def test_container_runs_as_nobody_and_says_that_it_is_untried() -> None:
    text = (DEPLOY / "Containerfile").read_text()

    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    assert users == ["sterna"]
    assert text.index("USER sterna") < text.index("ENTRYPOINT")
    assert "UNTRIED" in text
    assert "--read-only" in text
    assert "No container engine ran it" in (DEPLOY / "README.md").read_text()
