"""`sterna serve` as a process."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crawl.running import COMMAND
from tests.forking import Forked


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command and the line that it says when it can be asked."""
    process = Forked(
        [*COMMAND, "serve", str(folder), "--listen", "127.0.0.1:0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        line = process.stdout.readline().rstrip("\n")
        if not line:
            raise AssertionError(process.communicate(timeout=20)[1])
        yield process, line
    finally:
        process.kill()
        process.communicate()


def address_in(line: str) -> str:
    """The page's address, without the slash at its end."""
    return line.partition(" at ")[2].split()[0].rstrip("/")
