"""Memory of groups of processes, told and bounded by the kernel's control groups (version 1 or 2)."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VERSION_1 = Path("/sys/fs/cgroup/memory")
VERSION_2 = Path("/sys/fs/cgroup")
SAMPLE_SECONDS = 0.25


class MemoryGroup:
    """Bounds the processes that entered it, and all that come from them, together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_first_version = (folder / "memory.limit_in_bytes").exists()

    def limit(self, size_bytes: int) -> None:
        name = "memory.limit_in_bytes" if self._is_first_version else "memory.max"
        (self._folder / name).write_text(str(size_bytes))

    def within(self, command: Sequence[str]) -> list[str]:
        """The command as one that enters the group before it begins."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def peak_bytes(self) -> int:
        """The most that was taken of the bound, files that the kernel keeps in memory included."""
        name = "memory.max_usage_in_bytes" if self._is_first_version else "memory.peak"
        return int((self._folder / name).read_text())

    def process_bytes(self) -> int:
        """What the processes have for themselves now: nothing of it can be dropped."""
        lines = dict(line.split() for line in (self._folder / "memory.stat").read_text().splitlines())
        return int(lines["total_rss" if self._is_first_version else "anon"])

    def killed(self) -> int:
        """How many processes the kernel has killed because the bound was reached."""
        name = "memory.oom_control" if self._is_first_version else "memory.events"
        lines = dict(line.split() for line in (self._folder / name).read_text().splitlines())
        return int(lines["oom_kill"])


@contextmanager
def memory_group(size_bytes: int) -> Iterator[MemoryGroup]:
    """A new group with this bound, gone at the end; its processes must be over by then."""
    top = VERSION_1 if VERSION_1.is_dir() else VERSION_2
    folder = top / f"sterna-owners-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise SystemExit(f"bench.owners needs root and a memory controller at {top}: {error}") from error
    try:
        group = MemoryGroup(folder)
        group.limit(size_bytes)
        yield group
    finally:
        folder.rmdir()


class Watch(threading.Thread):
    """Looks at a group now and then: the most that its processes had for themselves."""

    def __init__(self, group: MemoryGroup) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._group = group
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, self._group.process_bytes())

    def stop(self) -> None:
        self._over.set()
        self.join()
