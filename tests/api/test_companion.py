"""The children that follow a crawl, as the crawl sees them; here programs of a few lines stand for them."""

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

# Each begins by noting its own process, what it was started with, and what of its environment it sees.
BEGIN = """
import os, pathlib, signal, sys, time
what, secret = sys.argv[1], os.environ.get("DATABASE_PASSWORD", "-")
pathlib.Path({note!r} + what).write_text(f"{{os.getpid()}} {{secret}} {{' '.join(sys.argv[1:])}}")
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
    """The one of the child that indexes."""
    return tmp_path / "note-index"


@pytest.fixture
def storage_note(tmp_path: Path) -> Path:
    return tmp_path / "note-storage"


@pytest.fixture
def run(
    tmp_path: Path, told: Told, note: Path, storage_note: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Runs a crawl of a few commits, with such a program for its children."""

    def run(program: str, during: Callable[[], None] = lambda: None, *, index: bool = True) -> None:
        monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
        code = BEGIN.format(note=str(tmp_path / "note-")) + program
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
    for each in (note, storage_note):
        assert not each.exists() or not is_alive(pid_of(each)), "a child is left behind"


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
    assert note.read_text().split()[1:] == ["-", "index", "--parent", str(os.getpid()), "--", str(tmp_path)]
    assert (told.warnings, told.shown) == ([], [""])


def test_without_an_index_and_without_storage_there_is_no_child(run: Callable[..., None], note: Path) -> None:
    run(TO_THE_END, index=False)
    assert not note.exists()


def test_storage_rules_that_come_later_start_another_which_has_the_passwords(
    run: Callable[..., None], note: Path, storage_note: Path, tmp_path: Path
) -> None:
    run(TO_THE_END, lambda: (tmp_path / "storage.toml").write_text(""))
    assert note.read_text().split()[1:3] == ["-", "index"]
    assert storage_note.read_text().split()[1:3] == ["hunter2", "storage"]


def test_what_they_say_is_handed_on_together(run: Callable[..., None], told: Told, tmp_path: Path) -> None:
    (tmp_path / "storage.toml").touch()
    said = (
        '{"warning": "index: the disk is full"}',
        "some library: hello",
        '{"left": 1200}',
        '{"left": 1}',
        '{"left": 0}',
    )
    # The one that stores speaks once the other has spoken.
    spoken = tmp_path / "spoken"
    run(f"""
spoken = pathlib.Path({str(spoken)!r})
if what == "index":
    print({chr(10).join(said)!r}, flush=True)
    spoken.touch()
    time.sleep(1)
else:
    while not spoken.exists(): time.sleep(0.01)
    time.sleep(0.2)
    print('{{"left": 3}}')
""")
    by_hand = f"sterna index {tmp_path} and sterna storage run {tmp_path}"
    assert told.warnings == ["index: the disk is full"]
    assert told.shown == [
        f"indexing: 1,200 pages left (Ctrl-C leaves the rest to: {by_hand})",
        f"indexing: 1 page left (Ctrl-C leaves the rest to: {by_hand})",
        f"indexing: nearly done (Ctrl-C leaves the rest to: {by_hand})",
        f"indexing: nearly done, storing: 3 to go (Ctrl-C leaves the rest to: {by_hand})",
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
        f"pages are no longer indexed (exit code -9); afterwards: sterna index {tmp_path}"
    ]


def test_last_words_of_one_that_breaks_are_told(run: Callable[..., None], told: Told) -> None:
    run("raise RuntimeError('out of order')")
    (warning,) = told.warnings
    assert "(exit code 1: RuntimeError: out of order)" in warning


def test_note_is_told_once_and_says_nothing_of_how_it_ends(run: Callable[..., None], told: Told) -> None:
    note = '{"note": "not confined: the kernel has no Landlock"}'
    run(f"print({note!r}); print({note!r}, flush=True); raise RuntimeError('out of order')")
    first, last = told.warnings
    assert first == "not confined: the kernel has no Landlock"
    assert "(exit code 1: RuntimeError: out of order)" in last


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
