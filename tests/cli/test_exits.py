"""How a command ends: an error is one line and a code, Ctrl-C a code, wherever it arrives."""

import errno
import signal
from collections.abc import Iterator
from typing import NoReturn

import pytest

from sterna import errors
from sterna.cli.exits import INTERRUPTED, Exit, interruptible, reported
from sterna.errors import NotACollection, QueryError, SternaError, StorageError, UsageError


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Python's own handler of Ctrl-C, which a test runner in the background may not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def library(error: type[Exception]) -> NoReturn:
    """Does what libraries in C do with a Ctrl-C that arrives inside them."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise error("Query interrupted") from None
    raise AssertionError("no signal")


@pytest.mark.parametrize("error", [RuntimeError, SystemError, QueryError, ImportError, OSError])
def test_ctrl_c_inside_a_library_is_ctrl_c(
    error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        library(error)
    assert (ended.value.code, capsys.readouterr().err) == (INTERRUPTED, "")


def test_command_may_have_words_for_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported(), interruptible("stopped", Exit.STOPPED):
        library(RuntimeError)
    assert (ended.value.code, capsys.readouterr().err) == (Exit.STOPPED, "sterna: stopped\n")


def test_plain_ctrl_c_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        signal.raise_signal(signal.SIGINT)
    assert (ended.value.code, capsys.readouterr().err) == (INTERRUPTED, "")


def test_ctrl_c_of_an_earlier_command_does_not_count() -> None:
    with pytest.raises(SystemExit), reported():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="a fault"), reported():
        raise RuntimeError("a fault")


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with reported():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), Exit.USAGE),
        (QueryError("x"), Exit.USAGE),
        (NotACollection("x"), Exit.COLLECTION),
        (StorageError("x"), Exit.STORAGE),
        (SternaError("x"), Exit.NOTHING),
    ],
)
def test_error_is_one_line_and_a_code(
    error: SternaError, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise error
    assert (ended.value.code, capsys.readouterr().err) == (code, "sterna: x\n")


def test_full_disk_under_the_output_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert ended.value.code == Exit.STORAGE
    assert capsys.readouterr().err == "sterna: cannot write the output: No space left on device\n"


def test_missing_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise ModuleNotFoundError("no duckdb", name="duckdb.typing")
    assert ended.value.code == Exit.USAGE
    assert "scripts/install home" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError), reported():
        raise ModuleNotFoundError("no numpy", name="numpy")


def test_extra_is_installed_by_pip_outside_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "__file__", "/usr/lib/python3/dist-packages/sterna/errors.py")
    missing = errors.missing_extra(ModuleNotFoundError("no sqlalchemy", name="sqlalchemy.exc"))
    assert missing == "needs the extra 'storage': pip install 'sterna[home,storage]'"
