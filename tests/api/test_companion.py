"""The child that follows a crawl, as the crawl sees it; here programs of a few lines stand for it."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sterna.api import companion as module
from sterna.api.companion import attended
from sterna.home.crawl import Run
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options

# Each begins by noting its own process and what it was started with.
BEGIN = """
import os, pathlib, signal, sys, time
pathlib.Path({note!r}).write_text(f"{{os.getpid()}} {{' '.join(sys.argv[1:])}}")
"""
TO_THE_END = "sys.stdin.read()"
DEAF = """signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"warning": "deaf"}', flush=True)
time.sleep(60)"""


class Told:
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.shown: list[str] = []


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


@pytest.fixture
def run(
    tmp_path: Path, told: Told, note: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Runs a crawl of a few commits, with such a program for its child."""

    def run(program: str, during: Callable[[], None] = lambda: None, *, index: bool = True) -> None:
        code = BEGIN.format(note=str(note)) + program
        monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
        options = Options(index=index)
        crawl = Run(stop=asyncio.Event())
        with attended(
            CollectionFolder(tmp_path),
            options,
            run=crawl,
            warn=told.warnings.append,
            show=told.shown.append,
        ):
            assert not crawl.on_parcels(())
            during()
            assert not crawl.on_parcels(())

    yield run
    if note.exists():
        assert not is_alive(pid_of(note)), "a child is left behind"


def pid_of(note: Path) -> int:
    return int(note.read_text().split()[0])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def begun(note: Path) -> Callable[[], None]:
    return lambda: wait_until(lambda: note.exists() and bool(note.read_text()))


def test_child_starts_with_the_first_commit_and_ends_when_its_input_is_closed(
    run: Callable[..., None], told: Told, note: Path, tmp_path: Path
) -> None:
    run(TO_THE_END, begun(note))
    assert note.read_text().split()[1:] == ["--parent", str(os.getpid()), "--", str(tmp_path)]
    assert (told.warnings, told.shown) == ([], [""])


def test_without_an_index_and_without_storage_there_is_no_child(run: Callable[..., None], note: Path) -> None:
    run(TO_THE_END, index=False)
    assert not note.exists()


def test_storage_rules_that_come_later_start_it_without_the_index(
    run: Callable[..., None], note: Path, tmp_path: Path
) -> None:
    run(TO_THE_END, lambda: (tmp_path / "storage.toml").write_text(""), index=False)
    assert "--no-index" in note.read_text()


def test_what_it_says_is_handed_on(run: Callable[..., None], told: Told, tmp_path: Path) -> None:
    (tmp_path / "storage.toml").touch()
    said = (
        '{"warning": "index: the disk is full"}',
        "some library: hello",
        '{"left": {"index": 1200}}',
        '{"left": {"index": 1, "storage": 3}}',
        '{"left": {"index": 0}}',
    )
    run(f"print({chr(10).join(said)!r})")
    by_hand = f"sterna index {tmp_path} and sterna storage run {tmp_path}"
    assert told.warnings == ["index: the disk is full"]
    assert told.shown == [
        f"indexing: 1,200 pages left (Ctrl-C leaves the rest to: {by_hand})",
        f"indexing: 1 page left, storing: 3 to go (Ctrl-C leaves the rest to: {by_hand})",
        f"indexing: nearly done (Ctrl-C leaves the rest to: {by_hand})",
        "",
    ]


def test_death_is_one_warning_and_the_crawl_goes_on(
    run: Callable[..., None], told: Told, note: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        begun(note)()
        os.kill(pid_of(note), signal.SIGKILL)
        wait_until(lambda: bool(told.warnings))

    run(TO_THE_END, kill)
    assert told.warnings == [
        f"pages are no longer indexed and stored (exit code -9); afterwards: sterna index {tmp_path}"
    ]


def test_last_words_of_one_that_breaks_are_told(run: Callable[..., None], told: Told) -> None:
    run("raise RuntimeError('out of order')")
    (warning,) = told.warnings
    assert "(exit code 1: RuntimeError: out of order)" in warning


def test_program_that_cannot_be_started_is_one_warning(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND", (str(tmp_path / "nothing"),))
    crawl = Run(stop=asyncio.Event())
    with attended(
        CollectionFolder(tmp_path),
        Options(),
        run=crawl,
        warn=told.warnings.append,
        show=told.shown.append,
    ):
        assert not crawl.on_parcels(())
        assert not crawl.on_parcels(())
    (warning,) = told.warnings
    assert "No such file" in warning


def test_ctrl_c_while_it_is_waited_for_leaves_the_rest(
    run: Callable[..., None], told: Told, note: Path, tmp_path: Path
) -> None:
    run("sys.stdin.read(); os.kill(os.getppid(), signal.SIGINT); time.sleep(60)", begun(note))
    assert told.warnings == [f"left for the next time: sterna index {tmp_path}"]


def test_crawl_that_fails_leaves_the_rest_even_to_one_that_does_not_listen(
    run: Callable[..., None], told: Told, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.3)

    def fail() -> None:
        wait_until(lambda: bool(told.warnings))
        raise OSError("the crawl failed")

    with pytest.raises(OSError, match="the crawl failed"):
        run(DEAF, fail)
    wait_until(lambda: not is_alive(pid_of(note)))
    assert told.warnings == ["deaf"]
