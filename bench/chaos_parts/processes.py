"""The processes of a scenario as /proc shows them: what each does, and which nobody waits for."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.chaos_parts.plan import Role

from sterna.runtime.cell import kernel

_PR_SET_CHILD_SUBREAPER = 36
_FORKER = "sterna.runtime.cell.forker"
_CONFINED = "sterna.runtime.cell.confined_process"
_CELLS = {"sterna.runtime.reader:serve": Role.READER}  # every other entry is the engine's


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as /proc shows it."""

    pid: int
    parent: int
    state: str  # R, S, T (stopped), Z (over, and nobody took its code) ...
    words: tuple[str, ...]  # its command line


def adopt_orphans() -> None:
    """From now on whatever loses its parent below this process becomes its child, and is still found."""
    kernel.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def look() -> list[Seen]:
    """Every process below this one."""
    children: defaultdict[int, list[Seen]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (seen := _look_at(int(entry.name))):
            children[seen.parent].append(seen)
    found = list(children[os.getpid()])
    for seen in found:
        found += children[seen.pid]
    return found


def _look_at(pid: int) -> Seen | None:
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it ended a moment ago
        return None
    return Seen(pid, int(parent), state, tuple(filter(None, words)))


def role_of(seen: Seen, parent: Seen | None) -> Role | None:
    """What a process does; None if it is over, or no part of the scenario."""
    if seen.state in "ZX" or not seen.words:
        return None
    if seen.words[0].startswith("postgres:") or Path(seen.words[0]).name == "postgres":
        return Role.POSTGRES
    if _CONFINED in seen.words:
        return Role.CONFINED
    if _FORKER in seen.words:
        return _role_of_cell(seen, parent)
    if "sterna" not in seen.words:
        return None
    command, *others = (*seen.words[seen.words.index("sterna") + 1 :], "", "")
    if command == "follow":
        return Role.STORAGE if others[0] == "storage" else Role.INDEXER
    return {"crawl": Role.HOME, "host": Role.HOST}.get(command)


def _role_of_cell(seen: Seen, parent: Seen | None) -> Role:
    """A cell has the command line of the warm parent that forked it; that of a wrapper differs."""
    is_cell = parent is not None and parent.words == seen.words and "python" in Path(seen.words[0]).name
    return _CELLS.get(seen.words[-1], Role.ENGINE) if is_cell else Role.WARM_PARENT


def by_role(found: Iterable[Seen]) -> dict[Role, list[int]]:
    """The numbers of the processes of each role."""
    numbered = {seen.pid: seen for seen in found}
    present: defaultdict[Role, list[int]] = defaultdict(list)
    for seen in numbered.values():
        if role := role_of(seen, numbered.get(seen.parent)):
            present[role].append(seen.pid)
    return present


def bury(found: Iterable[Seen], *, awaited: Collection[int]) -> None:
    """Takes the codes of adopted processes that are over; others wait for those that are `awaited`."""
    for seen in found:
        if seen.state == "Z" and seen.parent == os.getpid() and seen.pid not in awaited:
            os.waitpid(seen.pid, 0)
