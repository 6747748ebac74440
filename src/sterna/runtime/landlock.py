"""Landlock: a process gives up every file, network and signal right that its kernel lets it give up."""

import ctypes
import os

from sterna.errors import JailError
from sterna.runtime import kernel

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION

# The kernel's documentation, userspace-api/landlock: with which ABI how many rights there were.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # bit by bit, up to ioctl on devices
_NETWORK_RIGHTS = {4: 2}  # bind and connect by TCP
_SCOPES = {6: 2}  # abstract Unix sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def abi() -> int:
    """The number of the kernel's Landlock; 0 if it has none or it is switched off."""
    try:
        return kernel.call(_CREATE_RULESET, 0, 0, _VERSION)
    except OSError:
        return 0


def restrict() -> None:
    """Denies this thread, and those it starts, all that can be denied; does nothing without Landlock."""
    version = abi()
    if not version:
        return
    wanted = _Ruleset(*(_bits(rights, version) for rights in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES)))
    try:
        # What an older kernel does not know is zero here, and so it takes the longer structure too.
        ruleset = kernel.call(_CREATE_RULESET, ctypes.addressof(wanted), ctypes.sizeof(wanted), 0)
        kernel.call(_RESTRICT_SELF, ruleset, 0)
    except OSError as error:
        raise JailError(f"an engine cannot be jailed here: Landlock fails ({error.strerror})") from error
    os.close(ruleset)


def _bits(rights: dict[int, int], version: int) -> int:
    count = max((count for since, count in rights.items() if since <= version), default=0)
    return (1 << count) - 1
