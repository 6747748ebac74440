"""User and kernel CPU time of groups of processes, told by the kernel's control groups (version 1 or 2)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION_1 = Path("/sys/fs/cgroup/cpuacct")
VERSION_2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds."""

    user: float = 0.0
    kernel: float = 0.0

    @property
    def seconds(self) -> float:
        return self.user + self.kernel

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user - other.user, self.kernel - other.kernel)

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user + other.user, self.kernel + other.kernel)


class CpuGroup:
    """Counts the processes that entered it, and all that come from them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def counted(self, command: Sequence[str]) -> list[str]:
        """The command as one that enters the group before it begins."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def spent(self) -> Cpu:
        if (self._folder / "cpuacct.usage").exists():
            return self._spent_1()
        lines = dict(line.split() for line in (self._folder / "cpu.stat").read_text().splitlines())
        return Cpu(int(lines["user_usec"]) / 1e6, int(lines["system_usec"]) / 1e6)

    def _spent_1(self) -> Cpu:
        # The split is coarse where the sum is exact: so the sum is split as the kernel splits it.
        total = int((self._folder / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (self._folder / "cpuacct.stat").read_text().splitlines())
        user, kernel = int(lines["user"]), int(lines["system"])
        share = user / (user + kernel) if user + kernel else 1.0
        return Cpu(total * share, total * (1 - share))


@contextmanager
def cpu_group(name: str) -> Iterator[CpuGroup]:
    """A new group, gone at the end; its processes must be over by then."""
    folder = _top() / name
    folder.mkdir()
    try:
        yield CpuGroup(folder)
    finally:
        folder.rmdir()


def groups_named(prefix: str) -> list[Path]:
    """The folders of groups whose names begin so."""
    return list(_top().glob(f"{prefix}*"))


def _top() -> Path:
    return VERSION_1 if VERSION_1.is_dir() else VERSION_2
