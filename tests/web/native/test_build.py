"""The compilation of the reader in C, with a compiler, without one, and with one that fails."""

import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

from sterna.web.native import build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sources, as a checkout has them before it is installed."""
    for path in (Path(build.__file__), *build.HERE.glob("*.[ch]")):
        shutil.copy(path, tmp_path)
    return tmp_path


def compile_in(folder: Path) -> str:
    return str(run_path(str(folder / "build.py"))["compile_reader"]())


def test_reader_is_compiled_once_and_again_when_a_source_changed(folder: Path) -> None:
    library = folder / build.LIBRARY.name
    assert compile_in(folder) == ""
    first = library.stat()
    assert compile_in(folder) == ""
    assert library.stat().st_mtime_ns == first.st_mtime_ns

    (folder / "text.c").touch()
    assert compile_in(folder) == ""
    assert library.stat().st_ino != first.st_ino
    assert sorted(path.suffix for path in folder.iterdir() if path.is_dir()) == []


def test_without_a_compiler_there_is_no_reader_and_one_line_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_in(folder)
    (folder / "text.c").touch()
    monkeypatch.setenv("PATH", str(folder / "empty"))
    monkeypatch.delenv("CC", raising=False)

    done = subprocess.run([sys.executable, folder / "build.py"], capture_output=True, text=True, check=True)

    assert done.stderr == (
        "sterna: the reader in C was not built (no C compiler): pages are read in Python alone, at about half"
        " the speed; apt-get install gcc libc6-dev\n"
    )
    assert not (folder / build.LIBRARY.name).exists()  # one of other sources is not used


@pytest.mark.parametrize(
    ("compiler", "told"),
    [
        ("/no/such/cc", "/no/such/cc does not run"),
        ("cc --no-such-flag", "failed: "),
        ("false", "exit code 1"),
    ],
)
def test_compiler_that_fails_is_told_in_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, told: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    reason = compile_in(folder)
    assert told in reason
    assert "\n" not in reason


def test_sources_compile_without_a_warning(folder: Path) -> None:
    (folder / "references.h").write_text(build.references())
    flags = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-I", folder)
    subprocess.run(["cc", *flags, *build.sources_of(folder)], check=True)
