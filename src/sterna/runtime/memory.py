"""What a process takes of the machine's memory."""

import ctypes
from pathlib import Path

HEAPS = 2
LARGE_BLOCK_BYTES = 512 * 1024
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of malloc.h

# glibc has them; other C libraries keep less to themselves.
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def peak_memory_bytes(process: int | str = "self") -> int:
    """The most that a process ever had resident since its program began; 0 if it is gone.

    Not getrusage's maximum: that is handed down from the parent when a program is started.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if "VmHWM" in line), 0)


def share_heaps() -> None:
    """Keeps the C library from making a heap for every thread, and from keeping large blocks in them."""
    if _mallopt:
        _mallopt(_M_ARENA_MAX, HEAPS)
        _mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def give_back_memory() -> None:
    """Gives what was freed back to the system; takes a millisecond or a few."""
    if _malloc_trim:
        _malloc_trim(0)
