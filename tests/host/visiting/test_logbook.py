"""The log of a visit: what it says after a crash, and what a nearly full disk costs."""

import errno
import random
from pathlib import Path
from typing import Any

import pytest
from tests import making
from tests.host.knocking import SITE

from sterna.errors import StorageError
from sterna.host.visiting import logbook
from sterna.host.visiting.logbook import LOG, Admission, Logbook
from sterna.host.visiting.progress import Step
from sterna.model import Checkpoint, Ended, StateChange, Target, Usage


def begun(folder: Path) -> Logbook:
    """The log of a visit that was taken on."""
    log = Logbook(folder)
    log.begin(Admission(visit=making.visit(Target(f"{SITE}/"), site=SITE), home="key", name="ada", at=1.0))
    return log


def step(number: int, **fields: Any) -> Step:
    return making.step(making.parcel(number=number, **fields))


@pytest.mark.parametrize("count", [1, 7, 15, 19, 40])
def test_half_an_entry_at_the_end_was_never_written(tmp_path: Path, count: int) -> None:
    """A crash may leave the last entry in part, and its parcel whole: neither was sent."""
    log = begun(tmp_path)
    for number in (1, 2):
        log.append(step(number))
    (tmp_path / LOG).write_bytes((tmp_path / LOG).read_bytes()[:-count])
    read = Logbook(tmp_path)
    assert read.read().progress.number == 1
    read.append(step(2))
    assert Logbook(tmp_path).read().progress.number == 2


def test_log_stays_small_whatever_the_crawler_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logbook, "REWRITE_BYTES", 10_000)
    log = begun(tmp_path)
    for number in range(1, 200):
        memory = bytes(number % 251 for _ in range(10)) + number.to_bytes(4, "big") * 100
        change = StateChange(added=((number, memory),), removed=(number - 1,), memory=memory)
        again = tuple(Target(f"{SITE}/{each}", attempts=number, not_before=5.0) for each in range(20))
        log.append(step(number, state=change, checkpoint=Checkpoint(again=again), usage=Usage(pages=1)))
    assert log.size_bytes < 30_000
    progress = Logbook(tmp_path).read().progress
    assert (progress.number, progress.usage.pages, len(progress.frontier)) == (199, 199, 21)
    assert [number for number, _ in progress.state.facts] == [199]
    assert progress.ended is None
    log.append(step(200, ended=Ended.FINISHED))
    assert Logbook(tmp_path).read().progress.ended is Ended.FINISHED


def test_log_that_cannot_be_rewritten_goes_on_as_it_is_and_is_rewritten_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a nearly full disk there may be room for an entry, but not for a second log."""
    monkeypatch.setattr(logbook, "REWRITE_BYTES", 2_000)
    log = begun(tmp_path)
    in_the_way = tmp_path / f"{LOG}.new"
    in_the_way.mkdir()
    for number in range(1, 21):
        log.append(step(number, state=StateChange(memory=random.Random(number).randbytes(400))))
    assert Logbook(tmp_path).read().progress.number == 20
    assert 1 <= len(caplog.records) < 10  # it is not tried with every parcel

    in_the_way.rmdir()
    for number in range(21, 200):
        log.append(step(number, state=StateChange(memory=random.Random(number).randbytes(400))))
    assert log.size_bytes == (tmp_path / LOG).stat().st_size < 8_000
    assert Logbook(tmp_path).read().progress.number == 199


def test_entry_that_cannot_be_written_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(tmp_path)
    log.append(step(1))
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", _fail)
        with pytest.raises(StorageError, match=r"cannot write .*/log: No space left on device"):
            log.append(step(2))
    log.append(step(2))
    assert log.size_bytes == (tmp_path / LOG).stat().st_size
    assert Logbook(tmp_path).read().progress.number == 2


def _fail(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
