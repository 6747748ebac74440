"""The examples in the docs run, and print what they say."""

import re
from pathlib import Path

import pytest
from tests.documents import ROOT, Document, copy_demo_site, copy_examples, demo_site, free_port, started

from sterna.cli import demo, host_init
from sterna.cli.exits import Exit
from sterna.host.policy import load


@pytest.mark.servers
def test_readme_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {demo.PORT: free_port()}
    document = Document("README.md", ports)
    site = copy_demo_site(tmp_path, ports)
    monkeypatch.setattr(demo, "files", lambda package: site.parent)
    monkeypatch.setattr(demo, "PORT", ports[demo.PORT])
    assert len(document.examples()) >= 5
    document.check(tmp_path)


@pytest.mark.servers
def test_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    with demo_site(tmp_path) as ports:
        document = Document("docs/tutorial.md", ports)
        assert len(document.examples()) >= 8
        (tmp_path / "mine.toml").write_text(document.blocks("toml")[0])
        document.check(tmp_path)


@pytest.mark.servers
def test_page_on_programs_prints_what_it_says(tmp_path: Path) -> None:
    with demo_site(tmp_path) as ports:
        document = Document("docs/programs.md", ports)
        assert len(document.examples()) >= 12
        copy_examples(tmp_path, ports)
        document.check(tmp_path)


@pytest.fixture
def host_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Keys of its own, and other ports for the site and its host."""
    monkeypatch.setenv("STERNA_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(host_init, "CLOSED_TO_UNITS", ())  # the interpreter of these tests may lie in a home
    monkeypatch.setattr(load, "read_machine", lambda: None)  # other tests keep the machine busy
    return {8480: free_port(), 8481: free_port()}


@pytest.mark.servers
def test_page_on_hosts_prints_what_it_says(tmp_path: Path, host_ports: dict[int, int]) -> None:
    document = Document("docs/hosts.md", host_ports)
    assert len(document.examples()) >= 6
    with started(document, tmp_path, *host_ports.values()):
        document.check(tmp_path)


@pytest.mark.servers
def test_page_for_owners_prints_what_it_says(tmp_path: Path, host_ports: dict[int, int]) -> None:
    document = Document("docs/host.md", host_ports)
    assert len(document.examples()) >= 12
    for name, text in zip(("policy.toml", "broken.toml"), document.blocks("toml"), strict=True):
        (tmp_path / name).write_text(text)
    with started(Document("docs/hosts.md", host_ports), tmp_path, *host_ports.values()):
        document.check(tmp_path)


def test_reference_lists_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d) \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [code.value for code in Exit]


def test_reference_names_every_option() -> None:
    from sterna.home.options import Options  # noqa: PLC0415 - beside its only use

    text = (ROOT / "docs/reference.md").read_text()
    inner = {"readers"}  # how many processes read pages is for measuring
    assert [
        name
        for name in Options.__struct_fields__
        if f"`{name}" not in text and name not in inner | {"limits"}
    ] == []


def test_every_guarantee_names_tests_that_exist() -> None:
    text = (ROOT / "docs/guarantees.md").read_text()
    promises = re.findall(r"^\| (?!promise|---)(.+?) \| (.+) \|$", text, re.MULTILINE)
    assert len(promises) > 30
    for promise, names in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", names)
        assert tests, promise
        for path, name in tests:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
