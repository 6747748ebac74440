"""What native code in a reader's cell could try: a forker's entry, for the jail and for the control outside.

Everything aims at what the test made itself: its process, its folder, its listener. An attack returns if the
kernel did what it was asked, and raises OSError if not.
"""

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import threading
from pathlib import Path

import msgspec
from tests.runtime.cell import native_attacks  # noqa: F401 - it registers some more
from tests.runtime.cell.attacking import (
    A_MEGABYTE,
    ATTACKS,
    Attack,
    Order,
    Outcome,
    attack,
    checked,
    libc,
    system_call,
)

from sterna.runtime import reader
from sterna.runtime.cell import kernel

SECRET = b"something that only the warm parent should know"
PROGRAM = Path("/bin/true").read_bytes()

__all__ = ["ATTACKS", "Attack", "Order", "Outcome", "serve"]

warm = reader.warm  # so that its warm parent has what a reader's has
_decoder = msgspec.msgpack.Decoder(Order)


def serve(sock: socket.socket) -> None:
    """Takes one order, tells the outcome, and stays until the host hangs up."""
    order = _decoder.decode(sock.recv(65536))
    if order.is_landlocked:
        checked(libc.prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))))  # no_new_privs
        kernel.restrict_by_landlock()
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


@attack()
def send_by_udp(order: Order, sock: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.sendto(b"the text of a page", ("127.0.0.1", order.port))


# Files


@attack()
def list_a_folder(order: Order, sock: socket.socket) -> object:
    return os.listdir(order.folder)  # noqa: PTH208 - only the call matters


@attack(unprivileged=("EACCES",))  # the warm parent changed its user
def read_the_parents_environment(order: Order, sock: socket.socket) -> object:
    return Path(f"/proc/{order.parent}/environ").read_bytes()


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


@attack(unless=("ENOSYS",), unprivileged=("EPERM",) if Path("/proc/sys/kernel/yama").exists() else ())
def take_a_descriptor_of_another(order: Order, sock: socket.socket) -> object:
    return system_call("pidfd_getfd", os.pidfd_open(order.victim), 0, 0)


@attack()
def slow_another_process_down(order: Order, sock: socket.socket) -> None:
    os.setpriority(os.PRIO_PROCESS, order.victim, 19)


@attack()
def limit_another_process(order: Order, sock: socket.socket) -> object:
    return resource.prlimit(order.victim, resource.RLIMIT_CORE, (0, 0))


def cpu_clock_of(pid: int) -> int:
    """The number of a process's clock, as clock_getcpuclockid() makes it."""
    return (~pid << 3) | 2


@attack()
def read_the_cpu_clock_of_another(order: Order, sock: socket.socket) -> object:
    return system_call("clock_gettime", cpu_clock_of(order.victim), ctypes.create_string_buffer(16))


@attack()
def wait_for_the_cpu_clock_of_another(order: Order, sock: socket.socket) -> object:
    until, now = 1, ctypes.create_string_buffer(16)  # TIMER_ABSTIME, and a time that is past
    return system_call("clock_nanosleep", cpu_clock_of(order.victim), until, now, 0)


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
