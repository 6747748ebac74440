"""Lines sorted on the disk: as many as there are, in little memory."""

import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

RUN_BYTES = 16 << 20  # sorted in memory, and then written
_MAX_RUNS = 64  # read at once: each is an open file


class Sorter:
    """Takes lines, each with its line break, and gives them in the order of their bytes."""

    def __init__(self, folder: Path, *, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._runs: list[Path] = []
        self._made = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size_bytes += len(line)
        if self._size_bytes >= self._run_bytes:
            self._write_run()

    def lines(self) -> Iterator[bytes]:
        """All lines; none can be added after."""
        self._lines.sort()
        yield from _merged(self._runs, self._lines)

    def _write_run(self) -> None:
        self._lines.sort()
        if len(self._runs) == _MAX_RUNS:
            old = self._runs
            self._runs = [self._write(_merged(old, []))]
            for path in old:
                path.unlink()
        self._runs.append(self._write(iter(self._lines)))
        self._lines, self._size_bytes = [], 0

    def _write(self, lines: Iterator[bytes]) -> Path:
        self._made += 1
        path = self._folder / f"run-{self._made}"
        with path.open("xb") as file:
            file.writelines(lines)
        return path


def _merged(runs: list[Path], lines: list[bytes]) -> Iterator[bytes]:
    with ExitStack() as opened:
        files = [opened.enter_context(path.open("rb")) for path in runs]
        yield from heapq.merge(*files, lines)
