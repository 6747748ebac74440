"""Runs programs as an ordinary user, also where the tests are root's and others may not see them."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.forking import ROOT

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


@contextmanager
def home_of_a_user() -> Iterator[Path]:
    """A folder of the user's own; pytest's are root's alone."""
    with TemporaryDirectory() as folder:
        if IS_ROOT:
            os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def run_as_user(home: Path, module: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `python -m MODULE WORDS`: as nobody if the tests are root's, otherwise as their user."""
    program = [sys.executable, "-m", module, *map(str, words)]
    if IS_ROOT:
        with TemporaryDirectory() as held:
            script = "; ".join(
                ["set -e", *_doors(Path(held)), f"exec {_changed_user()} {shlex.join(program)}"]
            )
            return _run(["unshare", "--mount", "sh", "-c", script], home)
    return _run(program, home)


def _run(words: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT, env=surroundings
    )


def _changed_user() -> str:
    return f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"


def _doors(held: Path) -> Iterator[str]:
    """Commands that let others reach Python and the tests, in a mount namespace of their own."""
    places = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    hidden = {place: closed for place in sorted(places) if (closed := _closed_above(place))}
    for number, place in enumerate(hidden):
        (held / str(number)).mkdir()
        yield f"mount --bind {place} {held}/{number}"
    for closed in sorted(set(hidden.values())):
        yield f"mount -t tmpfs -o mode=755 none {closed}"
    for number, place in enumerate(hidden):
        yield f"mkdir -p {place}"
        yield f"mount --bind {held}/{number} {place}"


def _closed_above(place: Path) -> Path | None:
    """The uppermost folder above this one that others may not pass."""
    return next((each for each in reversed(place.parents) if not each.stat().st_mode & 0o001), None)
