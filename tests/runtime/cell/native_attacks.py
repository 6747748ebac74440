"""Attacks of native code: executable memory, the limits of a cell, and other ways into the kernel."""

import ctypes
import mmap
import os
import resource
import socket
import struct

from tests.runtime.cell.attacking import (
    A_MEGABYTE,
    IS_INTEL,
    Order,
    attack,
    checked,
    libc,
    only_on_intel,
    system_call,
)

TEN_GIGABYTES = 10 * 1024**3

# Executable memory

FORTY_TWO = b"\xb8\x2a\0\0\0\xc3" if IS_INTEL else b"\x40\x05\x80\x52\xc0\x03\x5f\xd6"
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
NO_RESERVE = 0x4000
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
ALL = READ_WRITE | mmap.PROT_EXEC


def page(protection: int, code: bytes = FORTY_TWO) -> int:
    """The address of a page with code in it."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=PRIVATE, prot=protection)
    memory.write(code)
    _pages.append(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


_pages: list[mmap.mmap] = []


def call(address: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


@attack()
def map_executable_memory(order: Order, sock: socket.socket) -> None:
    assert call(page(ALL)) == 42


@attack()
def make_memory_executable(order: Order, sock: socket.socket) -> None:
    address = page(READ_WRITE)
    checked(libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), ALL))
    assert call(address) == 42


@attack(unless=("ENOSYS",))
def make_memory_executable_by_key(order: Order, sock: socket.socket) -> None:
    address = page(READ_WRITE)
    system_call("pkey_mprotect", address, mmap.PAGESIZE, ALL, -1)
    assert call(address) == 42


@attack()
def attach_executable_memory(order: Order, sock: socket.socket) -> None:
    private, executable, remove = 0, 0o100000, 0
    segment = checked(libc.shmget(private, ctypes.c_size_t(mmap.PAGESIZE), 0o700))
    address = libc.shmat(segment, None, executable)
    checked(libc.shmctl(segment, remove, None))
    ctypes.memmove(checked(address), FORTY_TWO, len(FORTY_TWO))
    assert call(address) == 42


@attack()
def make_all_memory_executable(order: Order, sock: socket.socket) -> None:
    read_implies_exec = 0x40_0000
    checked(libc.personality(ctypes.c_ulong(read_implies_exec)))
    assert call(page(READ_WRITE)) == 42


# Limits


MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@attack()
def raise_a_limit(order: Order, sock: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))


@attack()
def raise_a_limit_the_old_way(order: Order, sock: socket.socket) -> None:
    system_call("setrlimit", resource.RLIMIT_NOFILE, struct.pack("@LL", MOST_FILES, MOST_FILES))


@attack(jailed="ENOMEM")
def take_10_gigabytes_at_once(order: Order, sock: socket.socket) -> None:
    mmap.mmap(-1, TEN_GIGABYTES, flags=PRIVATE | NO_RESERVE, prot=READ_WRITE).close()


@attack(jailed="memory_bytes")
def take_memory_bit_by_bit(order: Order, sock: socket.socket) -> None:
    taken = [bytearray(A_MEGABYTE) for _ in range(order.number)]
    assert len(taken) == order.number


@attack(jailed="ENOMEM")
def take_memory_by_brk(order: Order, sock: socket.socket) -> None:
    for _ in range(order.number):
        checked(libc.sbrk(ctypes.c_long(A_MEGABYTE)))


@attack(unprivileged=("EPERM",))
def become_root_again(order: Order, sock: socket.socket) -> None:
    if order.is_control:
        os.seteuid(65534 if os.geteuid() == 0 else os.geteuid())
        os.seteuid(0)
    else:
        os.setresuid(0, 0, 0)


@attack(unless=("ENOSYS",))
def replace_the_filter(order: Order, sock: socket.socket) -> None:
    if order.is_control:
        checked(libc.prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))))  # no_new_privs
    allow_all = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF_0000))
    program = struct.pack("@HP", 1, ctypes.addressof(allow_all))
    system_call("seccomp", 1, 0, program)


# Other ways into the kernel

_VFORK = bytes.fromhex("b83a0000000f0585c0750931ffb83c0000000f05c3")  # and the child ends at once
_GETPID_OF_32_BITS = bytes.fromhex("53b814000000cd805bc3")  # int 0x80
# The pages are there before the jail: this is native code that found its way in.
VFORK = page(ALL, _VFORK) if IS_INTEL else 0
INT_80 = page(ALL, _GETPID_OF_32_BITS) if IS_INTEL else 0


@only_on_intel(attack())
def vfork(order: Order, sock: socket.socket) -> None:
    assert os.waitpid(call(VFORK), 0)[1] == 0


@only_on_intel(attack(unless=("SIGSEGV",)))
def call_as_32_bits(order: Order, sock: socket.socket) -> None:
    assert call(INT_80) == os.getpid()


@only_on_intel(attack(unless=("ENOSYS",)))
def call_as_x32(order: Order, sock: socket.socket) -> None:
    assert system_call(0x4000_0000 | 39) == os.getpid()


@attack()
def call_by_number(order: Order, sock: socket.socket) -> None:
    """With arguments that no call can do anything with."""
    system_call(order.number, -1, -1, -1, -1, -1, -1)
