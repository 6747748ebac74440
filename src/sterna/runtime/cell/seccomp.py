"""The filter of system calls, as raw BPF: what a cell needs once everything is imported, and nothing else.

Any other call ends the process (SIGSYS). Confined processes have a milder filter (`runtime/cell/refusals`).
`tests/runtime/cell/test_jail.py` runs the filter in the kernel and, for every number and both architectures,
in an interpreter of its own.
"""

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Callable

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import kernel

KILL, ALLOW = 0x8000_0000, 0x7FFF_0000  # SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _FLAG_TSYNC = 1, 2, 1
LOAD, _AND, JUMP_IF_EQUAL, JUMP_FROM, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # of linux/bpf_common.h
NUMBER, ARCHITECTURE, _ARGS = 0, 4, 16  # offsets in struct seccomp_data
_WORD = 0xFFFF_FFFF

_PROT_READ_WRITE = 0x3
_MAP_PRIVATE_ANONYMOUS, _MAP_NORESERVE, _MAP_STACK = 0x22, 0x4000, 0x2_0000
_MREMAP_MAYMOVE = 0x1
_MADV_DONTNEED, _MADV_FREE = 4, 8
_REALTIME, _MONOTONIC, _OWN_CPU, _THREAD_CPU = range(4)  # clocks
_FUTEX_CALLS = (0, 1, 3, 9, 10)  # WAIT, WAKE, REQUEUE, WAIT_BITSET, WAKE_BITSET
_FUTEX_FLAGS = 0x180  # private, realtime clock


class Check(Record, frozen=True):
    """A word of the arguments that must be one of `values` after masking."""

    offset: int
    values: tuple[int, ...]
    mask: int = _WORD


class Machine(Record, frozen=True):
    """An architecture: the kernel's mark for it, its seccomp call, and the numbers of the allowed calls."""

    mark: int
    seccomp: int
    numbers: dict[str, int]


def low(argument: int, *values: int, but: int = 0) -> Check:
    """The low word of an argument is one of `values`; the bits in `but` are ignored."""
    return Check(_ARGS + 8 * argument, values, _WORD & ~but)


def _null(argument: int) -> tuple[Check, Check]:
    return Check(_ARGS + 8 * argument, (0,)), Check(_ARGS + 8 * argument + 4, (0,))


_NO_EXEC = low(2, 0, but=_PROT_READ_WRITE)

# The allowed calls: their numbers on x86_64 and on aarch64, and what their arguments must be.
ALLOWED: dict[str, tuple[tuple[int, int], tuple[Check, ...]]] = {
    # The one open socket. No sendmsg: it carries descriptors. No address, and none of the flags that reach
    # rarely used corners of the kernel (MSG_OOB on Unix sockets: CVE-2025-38236).
    "read": ((0, 63), ()),
    "write": ((1, 64), ()),
    "recvfrom": ((45, 207), (low(3, 0, socket.MSG_WAITALL), *_null(4))),
    "sendto": ((44, 206), (low(3, 0, socket.MSG_NOSIGNAL), *_null(4))),
    "close": ((3, 57), ()),
    # Memory: never executable, shared or mapped from a file.
    "brk": ((12, 214), ()),
    "mmap": ((9, 222), (_NO_EXEC, low(3, _MAP_PRIVATE_ANONYMOUS, but=_MAP_NORESERVE | _MAP_STACK))),
    "mprotect": ((10, 226), (_NO_EXEC,)),
    "mremap": ((25, 216), (low(3, 0, but=_MREMAP_MAYMOVE),)),
    "munmap": ((11, 215), ()),
    "madvise": ((28, 233), (low(2, _MADV_DONTNEED, _MADV_FREE),)),
    # Locks among threads; not the kinds with priority inheritance.
    "futex": ((202, 98), (low(1, *_FUTEX_CALLS, but=_FUTEX_FLAGS),)),
    "sched_yield": ((24, 124), ()),
    # Time: on most machines, but not all, the vDSO answers the first two. Clocks by their fixed numbers only:
    # the others are made of a process's number, and are the CPU time of that process.
    "clock_gettime": ((228, 113), (low(0, _REALTIME, _MONOTONIC, _OWN_CPU, _THREAD_CPU),)),
    "gettimeofday": ((96, 169), ()),
    "clock_nanosleep": ((230, 115), (low(0, _REALTIME, _MONOTONIC),)),
    "restart_syscall": ((219, 128), ()),
    "getrandom": ((318, 278), ()),
    "getpid": ((39, 172), ()),
    "gettid": ((186, 178), ()),
    # A thread blocks its signals before it ends.
    "rt_sigprocmask": ((14, 135), ()),
    "rt_sigreturn": ((15, 139), ()),
    "exit": ((60, 93), ()),
    "exit_group": ((231, 94), ()),
}
MACHINES = {
    name: Machine(
        mark=mark, seccomp=seccomp, numbers={call: numbers[at] for call, (numbers, _) in ALLOWED.items()}
    )
    for at, (name, mark, seccomp) in enumerate((("x86_64", 0xC000_003E, 317), ("aarch64", 0xC000_00B7, 277)))
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def filter_of(machine: Machine) -> bytes:
    """The BPF program for a machine: its architecture first, then one number after the other.

    Numbers are compared whole, so those of x32, which have a bit more, are not allowed either.
    """
    code = [
        step(LOAD, ARCHITECTURE),
        step(JUMP_IF_EQUAL, machine.mark, then=1),
        step(RETURN, KILL),
        step(LOAD, NUMBER),
    ]
    for name, (_, checks) in ALLOWED.items():
        block = [each for check in checks for each in steps_of(check)]
        block.append(step(RETURN, ALLOW))
        code += [step(JUMP_IF_EQUAL, machine.numbers[name], otherwise=len(block)), *block]
    code.append(step(RETURN, KILL))
    return b"".join(code)


def steps_of(check: Check, *, otherwise: int = KILL) -> list[bytes]:
    """Goes on behind them if the argument passes the check."""
    count = len(check.values)
    tests = [
        step(JUMP_IF_EQUAL, value, then=count - place) for place, value in enumerate(check.values)
    ]  # each jumps over those that follow and over the end
    return [step(LOAD, check.offset), step(_AND, check.mask), *tests, step(RETURN, otherwise)]


def step(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, operand)


def why_not() -> str:
    """Why the filter cannot be installed on this machine; empty if it can."""
    name = os.uname().machine
    machine = MACHINES.get(name)
    if machine is None or sys.maxsize < 2**32:
        known = " and ".join(MACHINES)
        return f"no filter of system calls for {name} with this Python, only for 64-bit {known}"
    action = ctypes.c_uint32(KILL)
    try:
        kernel.call(machine.seccomp, _GET_ACTION_AVAIL, 0, ctypes.addressof(action))
    except OSError as error:
        return f"the kernel has no seccomp filter ({error.strerror})"
    return ""


def install(make: Callable[[Machine], bytes] = filter_of) -> None:
    """Puts the filter on every thread of this process for good; set no_new_privs before."""
    if reason := why_not():
        raise JailError(f"cannot sandbox a process: {reason}; see `sterna doctor`")
    machine = MACHINES[os.uname().machine]
    code = make(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    try:
        thread = kernel.call(machine.seccomp, _SET_MODE_FILTER, _FLAG_TSYNC, ctypes.addressof(program))
    except OSError as error:
        raise JailError(f"cannot sandbox a process: seccomp failed ({error.strerror})") from error
    if thread:
        raise JailError(f"cannot sandbox a process: its thread {thread} has a filter of its own")
