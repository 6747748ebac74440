"""How attacks on a cell are ordered, registered and judged; and their way to the kernel."""

import ctypes
import os
import platform
import socket
from collections.abc import Callable

from sterna.model import Record

A_MEGABYTE = 1024**2
IS_INTEL = platform.machine() == "x86_64"

libc = ctypes.CDLL(None, use_errno=True)
for _name in ("syscall", "shmat", "sbrk", "process_vm_readv"):
    getattr(libc, _name).restype = ctypes.c_long

NUMBERS = {  # x86_64, aarch64
    "bpf": (321, 280),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    "pkey_mprotect": (329, 288),
    "rt_sigqueueinfo": (129, 138),
    "seccomp": (317, 277),
    "setrlimit": (160, 164),
    "tgkill": (234, 131),
    "userfaultfd": (323, 282),
}


class Order(Record, frozen=True, kw_only=True):
    """What to try, and on whom."""

    name: str
    is_control: bool = False
    is_landlocked: bool = False  # behind this wall alone
    folder: str = ""
    port: int = 0
    victim: int = 0
    parent: int = 0
    number: int = 0


class Outcome(Record, frozen=True):
    """Whether it worked, and the name of the error if not."""

    worked: bool
    error: str = ""


class Attack(Record, frozen=True, kw_only=True):
    """An attack and what is expected of it."""

    run: Callable[[Order, socket.socket], object]
    jailed: str  # how the cell ends in the jail, or the error that it gets there
    unless: tuple[str, ...]  # what kernels that do not have it at all answer to the control
    unprivileged: tuple[str, ...]  # what ordinary users may be answered


ATTACKS: dict[str, Attack] = {}
_Run = Callable[[Order, socket.socket], object]


def attack(
    jailed: str = "violation", *, unless: tuple[str, ...] = (), unprivileged: tuple[str, ...] = ()
) -> Callable[[_Run], _Run]:
    def register(run: _Run) -> _Run:
        ATTACKS[run.__name__] = Attack(run=run, jailed=jailed, unless=unless, unprivileged=unprivileged)
        return run

    return register


def only_on_intel(register: Callable[[_Run], _Run]) -> Callable[[_Run], _Run]:
    return register if IS_INTEL else lambda run: run


def checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def system_call(name: str | int, *arguments: object) -> int:
    number = name if isinstance(name, int) else NUMBERS[name][not IS_INTEL]
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *given))
