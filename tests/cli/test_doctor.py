"""`sterna doctor`: what it says of this machine, and of worse ones."""

import json
import os

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from sterna.api import doctor as doctor_module
from sterna.cli.doctor import doctor
from sterna.runtime.cell.jail import Protection, protection


def examine(*flags: str) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, flags)


@pytest.fixture
def worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any protection."""
    offered = msgspec.structs.replace(
        protection(),
        has_seccomp=False,
        landlock_abi=0,
        bubblewrap="",
        has_bubblewrap=False,
        missing=("the kernel has no seccomp filter: foreign crawlers are refused",),
    )
    monkeypatch.setattr(doctor_module, "protection", lambda: offered)


def test_doctor_finds_this_machine_fit_for_foreign_crawlers() -> None:
    result = examine()
    assert result.exit_code == 0, result.output
    rows = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert rows["seccomp"] == "works"
    assert rows["kernel"].startswith(f"Linux {os.uname().release}")
    assert "foreign crawlers  can be taken" in result.output
    assert "own crawlers      run" in result.output
    assert "CLIPS engine      starts in " in result.output


def test_doctor_says_the_same_to_a_script() -> None:
    result = examine("--json")
    found = json.loads(result.output)
    assert result.exit_code == 0
    assert found["takes_foreign_crawlers"]
    assert found["runs_own_crawlers"]
    assert 0 < found["start_milliseconds"] < 1000
    offered = protection()
    assert {name: found[name] for name in Protection.__struct_fields__ if name != "missing"} == {
        name: getattr(offered, name) for name in Protection.__struct_fields__ if name != "missing"
    }
    assert tuple(found["missing"]) == offered.missing


@pytest.mark.usefixtures("worse")
def test_machine_without_seccomp_gets_exit_code_1_and_words() -> None:
    result = examine()
    assert result.exit_code == 1
    assert "foreign crawlers  are refused" in result.output
    assert "own crawlers      run" in result.output
    assert "missing: the kernel has no seccomp filter" in result.output


def test_engine_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "TRIAL", "sterna.runtime.no_such_engine:serve")
    result = examine("--json")
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert not found["takes_foreign_crawlers"]
    assert not found["runs_own_crawlers"]
    assert any(
        "no engine starts at all: cannot start a cell: its program failed to import" in each
        for each in found["missing"]
    )
