"""What a cell died of, told from what the kernel says of it."""

import os
import signal
from typing import Literal

from sterna.model import Record
from sterna.runtime.forker import EXIT_BROKEN, EXIT_MEMORY, EXIT_NO_JAIL, Died
from sterna.runtime.jail import JailLimits

FULL_SHARE = 0.5  # of the memory limit; what grows by doubling comes no closer

Cause = Literal["exit", "violation", "cpu_seconds", "memory_bytes", "killed", "crash"]

_BY_CODE: dict[int, tuple[Cause, str]] = {
    0: ("exit", ""),
    EXIT_MEMORY: ("memory_bytes", "it wanted more memory than it may have"),
    EXIT_NO_JAIL: ("crash", "its jail could not be entered"),
    EXIT_BROKEN: ("crash", "its engine raised an error"),
    -signal.SIGSYS: ("violation", "it tried what the jail forbids"),
    -signal.SIGXCPU: ("cpu_seconds", "it computed for longer than it may"),
}


class Death(Record, frozen=True, kw_only=True):
    """How a cell ended, and what it used."""

    ended: Cause
    detail: str = ""
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # resident at most, with what it shared with the warm parent


def death_of(died: Died, limits: JailLimits) -> Death:
    """The death of a cell that had these limits (none of them 0)."""
    ended, detail = _cause(died, limits)
    return Death(ended=ended, detail=detail, cpu_seconds=died.cpu_seconds, memory_bytes=died.memory_bytes)


def _cause(died: Died, limits: JailLimits) -> tuple[Cause, str]:
    code = os.waitstatus_to_exitcode(died.status)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code == -signal.SIGKILL:
        # The kernel sends it a second after SIGXCPU, to whoever blocks that.
        if died.cpu_seconds >= limits.cpu_seconds:
            return _BY_CODE[-signal.SIGXCPU]
        return "killed", "not by its host: perhaps the machine ran out of memory"
    # C code that gets no memory ends in its own way: exit(1), abort(), or the use of what it has not got.
    if died.memory_bytes - died.inherited_bytes >= FULL_SHARE * limits.memory_bytes:
        return "memory_bytes", "it broke when its memory was nearly used up"
    return ("exit", f"exit code {code}") if code > 0 else ("crash", signal.Signals(-code).name)
