"""Raw system calls, for those that Python has no function for."""

import ctypes
import os

_CAPABILITY_VERSION = 0x2008_0522  # _LINUX_CAPABILITY_VERSION_3, whose sets are two words each

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: int) -> int:
    """What the system call returns; OSError where the kernel says no. Pointers are given as addresses."""
    return _checked(_libc.syscall(*map(ctypes.c_long, (number, *arguments))))


def prctl(option: int, argument: int) -> int:
    """What prctl(2) returns; OSError as above."""
    return _checked(_libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3))


def personality(value: int) -> int:
    """Sets how this process is treated, unless the value is 0xffffffff, and returns how it was before."""
    return int(_libc.personality(ctypes.c_ulong(value))) & 0xFFFF_FFFF


def drop_capabilities() -> None:
    """Gives up every capability of this thread."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
