"""Calls of the kernel and the C library for which Python has no function: raw calls, Landlock, memory."""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from sterna.errors import JailError

HEAPS = 2
LARGE_BLOCK_BYTES = 512 * 1024
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of malloc.h

_CAPABILITY_VERSION = 0x2008_0522  # _LINUX_CAPABILITY_VERSION_3, whose sets are two words each
# The same on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_LANDLOCK_PATH_BENEATH = 1

# The number of rights since each ABI, from the kernel's documentation (userspace-api/landlock).
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # bit by bit, up to ioctl on devices
_NETWORK_RIGHTS = {4: 2}  # bind and connect by TCP
_SCOPES = {6: 2}  # abstract Unix sockets, signals
_READ = 0b1101  # execute, read files, list folders
_NEVER_MAKE = 0b1110_0100_0000  # devices, sockets, pipes
_OF_A_FILE = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# Only glibc has these; other C libraries return freed memory sooner.
_mallopt = getattr(_libc, "mallopt", None)
_malloc_trim = getattr(_libc, "malloc_trim", None)


def call(number: int, *arguments: int) -> int:
    """The result of a system call; OSError if it fails. Pointers are given as addresses."""
    return _checked(_libc.syscall(*map(ctypes.c_long, (number, *arguments))))


def prctl(option: int, argument: int) -> int:
    return _checked(_libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3))


def personality(value: int) -> int:
    """Sets the execution domain of this process unless `value` is 0xffffffff; returns the previous one."""
    return int(_libc.personality(ctypes.c_ulong(value))) & 0xFFFF_FFFF


def drop_capabilities(*, but: int = 0) -> None:
    """Gives up all capabilities except those of this mask that the process has; none can be inherited."""
    header, had = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(header, had))
    kept = [
        mask & had[at] for mask, at in ((but, 0), (but, 1), (0, 2), (but >> 32, 3), (but >> 32, 4), (0, 5))
    ]
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(*kept)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# -- Landlock ----------------------------------------------------------------------------------------------


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def landlock_abi() -> int:
    """The version of the kernel's Landlock; 0 if it has none or it is switched off."""
    try:
        return call(_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_VERSION)
    except OSError:
        return 0


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict_by_landlock(*, readable: Iterable[Path] = (), writable: Iterable[Path] = ()) -> None:
    """Takes from this thread, and those it starts, all rights that Landlock controls, if there is any.

    Files and folders that are named, and exist, stay readable or writable with all that is below them. A link
    that is named as writable gives no rights: it may lead anywhere.
    """
    version = landlock_abi()
    if not version:
        return
    counts = (
        max((count for since, count in rights.items() if since <= version), default=0)
        for rights in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES)
    )
    wanted = _Ruleset(*((1 << count) - 1 for count in counts))
    try:
        # Fields that an older kernel does not know are zero here, so it accepts the longer structure.
        ruleset = call(_LANDLOCK_CREATE_RULESET, ctypes.addressof(wanted), ctypes.sizeof(wanted), 0)
        for path in readable:
            _allow(ruleset, path, _READ)
        for path in writable:
            _allow(ruleset, path, wanted.files & ~_NEVER_MAKE, follow=False)
        call(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    except OSError as error:
        raise JailError(f"cannot sandbox a process: Landlock failed ({error.strerror})") from error
    os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int, *, follow: bool = True) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        return  # what is not there, or closed to us, needs no right
    try:
        mode = os.fstat(parent).st_mode
        if stat.S_ISLNK(mode):
            return
        if not stat.S_ISDIR(mode):
            rights &= _OF_A_FILE
        rule = _PathBeneath(rights, parent)
        call(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(parent)


# -- memory ------------------------------------------------------------------------------------------------


def memory_bytes(process: int | str = "self", *, is_peak: bool) -> int:
    """The resident memory of a process, now or at its peak since its program began; 0 if it is gone.

    Not getrusage's maximum: a process inherits that from its parent.
    """
    name = "VmHWM" if is_peak else "VmRSS"
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if name in line), 0)


def share_heaps() -> None:
    """Keeps the C library from making a heap for every thread, and from keeping large blocks in them."""
    if _mallopt:
        _mallopt(_M_ARENA_MAX, HEAPS)
        _mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def use_one_heap() -> None:
    """Lets all threads share one heap: with several, glibc reads /proc when it returns their memory."""
    if _mallopt:
        _mallopt(_M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Returns freed memory to the system; takes a few milliseconds."""
    if _malloc_trim:
        _malloc_trim(0)
