"""The filter of system calls, as raw BPF: what a cell needs once everything is imported, and nothing else.

Any other call ends the process (SIGSYS). A confined command has a milder one, which refuses a few calls.
`tests/runtime/cell/test_jail.py` runs the filter in the kernel and, for every number and both architectures,
in an interpreter of its own.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import kernel

KILL, ALLOW = 0x8000_0000, 0x7FFF_0000  # SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW
REFUSE = 0x0005_0000 | errno.EPERM  # SECCOMP_RET_ERRNO
_X32 = 0x4000_0000  # this bit marks the numbers of another set of calls on x86_64
_SET_MODE_FILTER, _GET_ACTION_AVAIL, _FLAG_TSYNC = 1, 2, 1
_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_FROM, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # of linux/bpf_common.h
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data
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


def _low(argument: int, *values: int, but: int = 0) -> Check:
    """The low word of an argument is one of `values`; the bits in `but` are ignored."""
    return Check(_ARGS + 8 * argument, values, _WORD & ~but)


def _null(argument: int) -> tuple[Check, Check]:
    return Check(_ARGS + 8 * argument, (0,)), Check(_ARGS + 8 * argument + 4, (0,))


_NO_EXEC = _low(2, 0, but=_PROT_READ_WRITE)

# The allowed calls: their numbers on x86_64 and on aarch64, and what their arguments must be.
ALLOWED: dict[str, tuple[tuple[int, int], tuple[Check, ...]]] = {
    # The one open socket. No sendmsg: it carries descriptors. No address, and none of the flags that reach
    # rarely used corners of the kernel (MSG_OOB on Unix sockets: CVE-2025-38236).
    "read": ((0, 63), ()),
    "write": ((1, 64), ()),
    "recvfrom": ((45, 207), (_low(3, 0, socket.MSG_WAITALL), *_null(4))),
    "sendto": ((44, 206), (_low(3, 0, socket.MSG_NOSIGNAL), *_null(4))),
    "close": ((3, 57), ()),
    # Memory: never executable, shared or mapped from a file.
    "brk": ((12, 214), ()),
    "mmap": ((9, 222), (_NO_EXEC, _low(3, _MAP_PRIVATE_ANONYMOUS, but=_MAP_NORESERVE | _MAP_STACK))),
    "mprotect": ((10, 226), (_NO_EXEC,)),
    "mremap": ((25, 216), (_low(3, 0, but=_MREMAP_MAYMOVE),)),
    "munmap": ((11, 215), ()),
    "madvise": ((28, 233), (_low(2, _MADV_DONTNEED, _MADV_FREE),)),
    # Locks among threads; not the kinds with priority inheritance.
    "futex": ((202, 98), (_low(1, *_FUTEX_CALLS, but=_FUTEX_FLAGS),)),
    "sched_yield": ((24, 124), ()),
    # Time: on most machines, but not all, the vDSO answers the first two. Clocks by their fixed numbers only:
    # the others are made of a process's number, and are the CPU time of that process.
    "clock_gettime": ((228, 113), (_low(0, _REALTIME, _MONOTONIC, _OWN_CPU, _THREAD_CPU),)),
    "gettimeofday": ((96, 169), ()),
    "clock_nanosleep": ((230, 115), (_low(0, _REALTIME, _MONOTONIC),)),
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


# What a confined command is refused: new sockets, a second way to make them, and the memory and files of
# other processes. Their numbers on x86_64 and on aarch64.
REFUSED = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}


_IOCTL = (16, 29)
_TYPING = (0x5412, 0x541C)  # TIOCSTI; TIOCLINUX, which can paste


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def filter_of(machine: Machine) -> bytes:
    """The BPF program for a machine: its architecture first, then one number after the other.

    Numbers are compared whole, so those of x32, which have a bit more, are not allowed either.
    """
    code = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_IF_EQUAL, machine.mark, then=1),
        _step(_RETURN, KILL),
        _step(_LOAD, _NR),
    ]
    for name, (_, checks) in ALLOWED.items():
        block = [step for check in checks for step in _check(check)]
        block.append(_step(_RETURN, ALLOW))
        code += [_step(_JUMP_IF_EQUAL, machine.numbers[name], otherwise=len(block)), *block]
    code.append(_step(_RETURN, KILL))
    return b"".join(code)


def refusal_of(machine: Machine) -> bytes:
    """The BPF program that refuses REFUSED, and to type into a terminal, and allows everything else."""
    at = list(MACHINES.values()).index(machine)
    numbers, ioctl = [each[at] for each in REFUSED.values()], _IOCTL[at]
    typing = [
        _step(_JUMP_IF_EQUAL, request, then=len(_TYPING) - place) for place, request in enumerate(_TYPING)
    ]  # over those that follow and over the permission
    far = len(typing) + 2
    to_refusal = [
        _step(_JUMP_IF_EQUAL, number, then=len(numbers) - place + far) for place, number in enumerate(numbers)
    ]
    return b"".join(
        [
            _step(_LOAD, _ARCH),
            _step(_JUMP_IF_EQUAL, machine.mark, then=1),
            _step(_RETURN, KILL),
            _step(_LOAD, _NR),
            _step(_JUMP_FROM, _X32, then=len(numbers) + 1 + far),
            *to_refusal,
            _step(_JUMP_IF_EQUAL, ioctl, otherwise=len(typing) + 1),
            _step(_LOAD, _ARGS + 8),  # the low word of the request: the kernel looks at no other
            *typing,
            _step(_RETURN, ALLOW),
            _step(_RETURN, REFUSE),
        ]
    )


def _check(check: Check) -> list[bytes]:
    count = len(check.values)
    tests = [
        _step(_JUMP_IF_EQUAL, value, then=count - place) for place, value in enumerate(check.values)
    ]  # each jumps over those that follow and over the end
    return [_step(_LOAD, check.offset), _step(_AND, check.mask), *tests, _step(_RETURN, KILL)]


def _step(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
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
