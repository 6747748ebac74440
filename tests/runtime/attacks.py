"""What native code in a cell could try: a forker's entry, for the jail and for the control outside.

Everything aims at what the test made itself: its process, its folder, its listener. An attack returns if the
kernel did what it was asked, and raises OSError if not.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from sterna.model import Record
from sterna.runtime import landlock

TEN_GIGABYTES = 10 * 1024**3
A_MEGABYTE = 1024**2
SECRET = b"something that only the warm parent should know"
PROGRAM = Path("/bin/true").read_bytes()
IS_INTEL = platform.machine() == "x86_64"

libc = ctypes.CDLL(None, use_errno=True)
for _name in ("syscall", "shmat", "sbrk", "process_vm_readv"):
    getattr(libc, _name).restype = ctypes.c_long

NUMBERS = {  # x86_64, aarch64
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
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


_decoder = msgspec.msgpack.Decoder(Order)


def serve(sock: socket.socket) -> None:
    """Takes one order, tells the outcome, and stays until the host hangs up."""
    order = _decoder.decode(sock.recv(65536))
    if order.is_landlocked:
        checked(libc.prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))))  # no_new_privs
        landlock.restrict()
    try:
        ATTACKS[order.name].run(order, sock)
        outcome = Outcome(True)
    except OSError as error:
        outcome = Outcome(False, errno.errorcode[error.errno or 0])
    sock.sendall(b"\n" + msgspec.json.encode(outcome))
    if order.is_control:  # who waits in recv() gets what comes without a signal to the socket's owner
        select.select([sock], [], [])
    while sock.recv(4096):
        pass


def checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def system_call(name: str | int, *arguments: object) -> int:
    number = name if isinstance(name, int) else NUMBERS[name][not IS_INTEL]
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *given))


# The network


@attack()
def make_a_socket(order: Order, sock: socket.socket) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


@attack()
def connect_by_tcp(order: Order, sock: socket.socket) -> None:
    with socket.socket(socket.AF_INET) as mine:
        mine.connect(("127.0.0.1", order.port))


@attack()
def connect_to_an_abstract_socket(order: Order, sock: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(f"\0sterna-test-{order.port}")


@attack()
def send_a_descriptor(order: Order, sock: socket.socket) -> object:
    return socket.send_fds(sock, [b"take this"], [sock.fileno()])


@attack(unless=("EOPNOTSUPP",))
def send_out_of_band(order: Order, sock: socket.socket) -> object:
    return sock.send(b"!", socket.MSG_OOB)


# Files


@attack()
def read_a_file(order: Order, sock: socket.socket) -> object:
    return Path(order.folder, "secret").read_bytes()


@attack()
def write_a_file(order: Order, sock: socket.socket) -> object:
    return Path(order.folder, "written").write_bytes(b"by an attack")


@attack()
def read_from_proc(order: Order, sock: socket.socket) -> object:
    return Path(f"/proc/{order.victim}/status").read_text()


@attack()
def remove_a_file(order: Order, sock: socket.socket) -> None:
    Path(order.folder, "secret").unlink()


@attack()
def fill_the_disk(order: Order, sock: socket.socket) -> None:
    with Path(order.folder, "written").open("wb") as file:
        for _ in range(8):  # it is the test's disk
            file.write(bytes(A_MEGABYTE))


@attack()
def duplicate_1000_descriptors(order: Order, sock: socket.socket) -> None:
    for _ in range(1000):
        os.dup(sock.fileno())


@attack()
def open_500_pipes(order: Order, sock: socket.socket) -> None:
    for _ in range(500):
        os.pipe()


@attack(unprivileged=("EPERM", "EACCES", "EINVAL"))
def mount_a_filesystem(order: Order, sock: socket.socket) -> None:
    if order.is_control:
        new_mounts, new_user, private_for_all = 0x20000, 0x1000_0000, 0x44000
        checked(libc.unshare(new_mounts | (0 if os.geteuid() == 0 else new_user)))
        checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(private_for_all), None))
    checked(libc.mount(b"tmpfs", order.folder.encode(), b"tmpfs", ctypes.c_ulong(0), None))


@attack(unprivileged=("EPERM",))
def change_the_root(order: Order, sock: socket.socket) -> None:
    os.chroot(order.folder)
    os.chdir("..")


# Processes


def end_if_child(pid: int) -> None:
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack()
def fork(order: Order, sock: socket.socket) -> None:
    end_if_child(os.fork())


@attack()
def clone(order: Order, sock: socket.socket) -> None:
    end_if_child(system_call("clone", int(signal.SIGCHLD), 0, 0, 0, 0))


@attack(unless=("ENOSYS",))
def clone3(order: Order, sock: socket.socket) -> None:
    arguments = struct.pack("=8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    end_if_child(system_call("clone3", arguments, len(arguments)))


@attack()
def spawn(order: Order, sock: socket.socket) -> object:
    return os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


@attack()
def execute(order: Order, sock: socket.socket) -> None:
    os.execv("/bin/true", ["true"])


@attack()
def execute_from_memory(order: Order, sock: socket.socket) -> None:
    file = os.memfd_create("program")
    os.write(file, PROGRAM)
    os.execve(file, ["true"], {})


@attack()
def start_a_thread(order: Order, sock: socket.socket) -> None:
    threading.Thread(target=len, args=("",)).start()


@attack(unprivileged=("EPERM",) if Path("/proc/sys/kernel/yama").exists() else ())
def trace_a_process(order: Order, sock: socket.socket) -> int:
    seize = 0x4206
    return checked(libc.ptrace(ctypes.c_long(seize), order.victim, None, None))


@attack(unprivileged=("EPERM",))  # the warm parent changed its user, which hides its memory
def read_the_parents_memory(order: Order, sock: socket.socket) -> None:
    offset = bytes.__basicsize__ - 1
    buffer = ctypes.create_string_buffer(len(SECRET))
    here = struct.pack("@PN", ctypes.addressof(buffer), len(SECRET))
    there = struct.pack("@PN", id(SECRET) + offset, len(SECRET))
    checked(
        libc.process_vm_readv(
            order.parent, here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), ctypes.c_ulong(0)
        )
    )
    assert buffer.raw == SECRET


# Signals to a process outside


@attack()
def signal_by_kill(order: Order, sock: socket.socket) -> None:
    os.kill(order.victim, signal.SIGTERM)


@attack()
def signal_by_tgkill(order: Order, sock: socket.socket) -> object:
    return system_call("tgkill", order.victim, order.victim, int(signal.SIGTERM))


@attack()
def signal_by_queue(order: Order, sock: socket.socket) -> object:
    from_queue = -1
    info = struct.pack("@iii116x", signal.SIGTERM, 0, from_queue)
    return system_call("rt_sigqueueinfo", order.victim, int(signal.SIGTERM), info)


@attack(unless=("ENOSYS",))
def signal_by_pidfd(order: Order, sock: socket.socket) -> None:
    signal.pidfd_send_signal(os.pidfd_open(order.victim), signal.SIGTERM)


@attack()
def signal_by_owning_the_socket(order: Order, sock: socket.socket) -> None:
    """The victim gets the signal as soon as the host sends something."""
    set_signal = 10  # F_SETSIG
    fcntl.fcntl(sock, fcntl.F_SETOWN, order.victim)
    fcntl.fcntl(sock, set_signal, signal.SIGTERM)
    fcntl.fcntl(sock, fcntl.F_SETFL, fcntl.fcntl(sock, fcntl.F_GETFL) | os.O_ASYNC)


@attack()
def signal_by_ioctl_fiosetown(order: Order, sock: socket.socket) -> None:
    own_by_ioctl(sock, 0x8901, order.victim)


@attack()
def signal_by_ioctl_siocspgrp(order: Order, sock: socket.socket) -> None:
    own_by_ioctl(sock, 0x8902, order.victim)


def own_by_ioctl(sock: socket.socket, request: int, victim: int) -> None:
    fioasync = 0x5452
    fcntl.ioctl(sock, request, struct.pack("i", victim))
    fcntl.ioctl(sock, fioasync, struct.pack("i", 1))


# Corners of the kernel


@attack(unless=("ENOSYS", "EPERM"))
def set_up_io_uring(order: Order, sock: socket.socket) -> object:
    return system_call("io_uring_setup", 8, ctypes.create_string_buffer(120))


@attack(unless=("ENOSYS",), unprivileged=("EPERM",))
def make_a_bpf_map(order: Order, sock: socket.socket) -> object:
    array = struct.pack("=IIII", 2, 4, 4, 1)
    return system_call("bpf", 0, array, len(array))


@attack(unless=("ENOSYS",), unprivileged=("EPERM",))
def handle_page_faults(order: Order, sock: socket.socket) -> object:
    user_mode_only = 1
    return system_call("userfaultfd", user_mode_only)


@attack(unless=("ENOSYS",), unprivileged=("EACCES", "EPERM"))
def count_performance_events(order: Order, sock: socket.socket) -> object:
    software, task_clock, not_the_kernel = 1, 1, 0x60
    attributes = struct.pack("=IIQQQQQ", software, 64, task_clock, 0, 0, 0, not_the_kernel).ljust(64, b"\0")
    return system_call("perf_event_open", attributes, 0, -1, -1, 0)


@attack(unless=("ENOSYS",))
def use_the_keyring(order: Order, sock: socket.socket) -> object:
    get_id, of_process = 0, -2
    return system_call("keyctl", get_id, of_process, 1)


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


# What only time or the host ends


@attack(jailed="cpu_seconds")
def compute_forever(order: Order, sock: socket.socket) -> None:
    while True:
        pass


@attack(jailed="cpu_seconds")
def compute_forever_and_hear_nothing(order: Order, sock: socket.socket) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        pass


@attack(jailed="killed")
def write_garbage_forever(order: Order, sock: socket.socket) -> None:
    while True:
        sock.sendall(b"\xff" * 65536)
