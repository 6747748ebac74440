"""What the filter of confined processes refuses: interpreted for both architectures, and in the kernel."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sterna.runtime.cell import seccomp
from sterna.runtime.cell.confined import Confined
from sterna.runtime.cell.refusals import LIMITED, MISSING, REFUSE, REFUSED, refusal_of
from sterna.runtime.cell.seccomp import ALLOW, KILL, MACHINES, Machine

BOTH = [pytest.param(at, machine, id=name) for at, (name, machine) in enumerate(MACHINES.items())]
needs_seccomp = pytest.mark.skipif(bool(seccomp.why_not()), reason="no seccomp")


def verdict(machine: Machine, number: int, *arguments: int, mark: int | None = None) -> int:
    """What the filter says to a call, by the rules of classic BPF."""
    given = [argument & 2**64 - 1 for argument in (*arguments, *[0] * 6)[:6]]
    data = struct.pack("=IIQ6Q", number, mark or machine.mark, 0, *given)
    code = list(struct.iter_unpack("=HBBI", refusal_of(machine)))
    place = accumulator = 0
    while True:
        operation, then, otherwise, operand = code[place]
        place += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:
            accumulator &= operand
        elif operation == 0x15:
            place += then if accumulator == operand else otherwise
        elif operation == 0x35:
            place += then if accumulator >= operand else otherwise
        else:
            assert operation == 0x06
            return int(operand)


@pytest.mark.parametrize(("at", "machine"), BOTH)
def test_what_is_refused_is_refused_and_the_rest_is_not(at: int, machine: Machine) -> None:
    refused = {number for numbers in REFUSED.values() if (number := numbers[at]) is not None}
    limited = {number for numbers, _ in LIMITED.values() if (number := numbers[at]) is not None}
    for number in set(range(1100)) - limited:
        expected = REFUSE if number in refused else MISSING if number == 435 else ALLOW
        assert verdict(machine, number) == expected, number
    for number in refused | limited | {0, 435}:
        assert verdict(machine, number | 0x4000_0000) == REFUSE  # x32
        assert verdict(machine, number, mark=0x4000_0003) == KILL  # i386


THREAD, PROCESS = 0x3D0F00, 0x0120_0011  # the flags of a thread of the C library, and of fork()
ARGUMENTS = [
    ("prlimit64", (0, 7), True),
    ("prlimit64", (1 << 32, 7), True),  # the kernel looks at the low word
    ("prlimit64", (4711, 7), False),
    ("setpriority", (0, 0, 5), True),
    ("setpriority", (0, 4711, 19), False),
    ("setpriority", (1, 0, 19), False),  # its group
    ("setpriority", (2, 0, 19), False),  # all of its user
    ("ioprio_set", (1, 0, 0), True),
    ("ioprio_set", (1, 4711, 0), False),
    ("ioprio_set", (3, 0, 0), False),
    *[
        (name, (who, 0), who == 0)
        for name in ("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
        for who in (0, 4711)
    ],
    *[
        ("socketpair", (socket.AF_UNIX, kind | flags), kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET))
        for kind in (1, 2, 3, 4, 5, 10)
        for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    ],
    ("clone", (THREAD,), True),
    ("clone", (PROCESS,), True),
    *[("clone", (PROCESS | 1 << bit,), False) for bit in (17, 25, 26, 27, 28, 29, 30)],
]


@pytest.mark.parametrize(("at", "machine"), BOTH)
@pytest.mark.parametrize(("name", "arguments", "is_allowed"), ARGUMENTS)
def test_filter_looks_at_arguments(
    at: int, machine: Machine, name: str, arguments: tuple[int, ...], is_allowed: bool
) -> None:
    number = LIMITED[name][0][at]
    assert number is not None
    assert verdict(machine, number, *arguments) == (ALLOW if is_allowed else REFUSE)


@pytest.mark.parametrize(("at", "machine"), BOTH)
def test_filter_looks_at_requests_to_devices(at: int, machine: Machine) -> None:
    ioctl = (16, 29)[at]
    for request in (0x5412, 0x541C, 0x4008_6602, 0x401C_5820, 1 << 32 | 0x5412):
        assert verdict(machine, ioctl, 0, request) == REFUSE
    for request in (0x5413, 0x5401, 0x8008_6601):
        assert verdict(machine, ioctl, 0, request) == ALLOW


# --- in the kernel

WORKS = """
import json, os, resource, socket, sys
from pathlib import Path

def deeds(request):
    asked = json.loads(request)
    mine, other = asked["file"], asked["other"]

    def told(deed):
        try:
            deed()
        except PermissionError:
            return "refused"
        return "done"

    def sends():
        ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.sendto(b"x", asked["socket"])

    def talks():
        ours, theirs = socket.socketpair()
        ours.send(b"x")

    def opens_and_changes_its_mode():
        with open(mine) as file:
            os.fchmod(file.fileno(), 0o644)

    yield json.dumps({
        "changes a mode": told(lambda: os.chmod(mine, 0o644)),
        "changes the mode of an open file": told(opens_and_changes_its_mode),
        "changes an owner": told(lambda: os.chown(mine, os.getuid(), os.getgid())),
        "changes a time": told(lambda: os.utime(mine, (1, 1))),
        "sets an attribute": told(lambda: os.setxattr(mine, "user.a", b"1")),
        "removes an attribute": told(lambda: os.removexattr(mine, "user.b")),
        "limits another process": told(lambda: resource.prlimit(other, resource.RLIMIT_CORE, (0, 0))),
        "slows another process down": told(lambda: os.setpriority(os.PRIO_PROCESS, other, 5)),
        "binds another process to a processor": told(
            lambda: os.sched_setaffinity(other, os.sched_getaffinity(other))
        ),
        "sends to a socket of the machine": told(sends),
        "limits itself": told(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
        "slows itself down": told(lambda: os.nice(1)),
        "talks to its own": told(talks),
        "starts a program": told(lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)),
    }).encode()

if __name__ == "__main__":
    print(next(deeds(sys.argv[1])).decode())
"""
OWN = {"limits itself", "slows itself down", "talks to its own", "starts a program"}


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "refused_works.py").write_text(WORKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[str]:
    """A file, a socket and a process of the same user."""
    (tmp_path / "file").write_text("x")
    os.setxattr(tmp_path / "file", "user.b", b"1")
    (tmp_path / "c").mkdir()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        receiver.bind(str(tmp_path / "s"))
        yield json.dumps({"file": str(tmp_path / "file"), "socket": str(tmp_path / "s"), "other": other.pid})
        other.kill()


@needs_seccomp
@pytest.mark.parametrize("place", ["c", "."], ids=["a file outside", "a file that it may write"])
def test_confined_process_changes_no_attributes_and_no_other_process(
    works: Path, asked: str, tmp_path: Path, place: str
) -> None:
    with closing(Confined(works, writable=[tmp_path / place])) as confined:
        said = json.loads(confined.call("refused_works:deeds", asked.encode()))
    assert {deed for deed, became in said.items() if became == "done"} == OWN


def test_the_same_deeds_succeed_in_a_process_that_is_not_confined(works: Path, asked: str) -> None:
    words = [sys.executable, str(works / "refused_works.py"), asked]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert set(said.values()) == {"done"}
