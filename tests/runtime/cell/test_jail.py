"""The jail: what native code in it can do, which is nothing, and that the same code does it outside."""

import asyncio
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.cell.attacks import ATTACKS, Attack, Order, Outcome, cpu_clock_of
from tests.runtime.cell.obeying import parent_of

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import jail, kernel, seccomp
from sterna.runtime.cell.jail import NOBODY, JailLimits, protection
from sterna.runtime.cell.pool import Cell, Death, Forker

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1024**2
LIMITS = JailLimits(memory_bytes=64 * MEGABYTE, cpu_seconds=1)
ROOMY = JailLimits(memory_bytes=16 * 1024**3, cpu_seconds=60)
MEGABYTES_TRIED = 96
ENDLESS = {name for name, each in ATTACKS.items() if each.jailed in ("cpu_seconds", "killed")}
TRIED = sorted(set(ATTACKS) - ENDLESS - {"call_by_number"})
USERS = ["as we are", "nobody"] if os.geteuid() == 0 else ["as we are"]
SECONDS = 20

# All is imported as root, who can read it wherever it lies, and then the warm parent becomes somebody else.
AS_WE_ARE = "from tests.runtime.cell.attacks import serve, warm"
UNPRIVILEGED = f"""
import os
{AS_WE_ARE}
warm()
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
"""
# A warm parent that keeps its rights, for the controls.
LOOSE = """
from sterna.runtime.cell import jail
jail.give_up_rights = lambda: None
"""


class Scene:
    """What attacks aim at: a process, a folder and two listeners of this test's own."""

    def __init__(self, user: str) -> None:
        self.is_privileged = os.geteuid() == 0 and user != "nobody"
        self.folder = Path(tempfile.mkdtemp())
        self.folder.chmod(0o777)
        (self.folder / "secret").write_text("keep this")
        owner = NOBODY if user == "nobody" else None
        if owner:
            os.chown(self.folder / "secret", owner, owner)
        self.victim = subprocess.Popen(["sleep", "60"], user=owner, group=owner)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0sterna-test-{self.port}")
        self.abstract.listen()

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        self.listener.close()
        self.abstract.close()
        shutil.rmtree(self.folder)

    def is_untouched(self) -> bool:
        for listener in (self.listener, self.abstract):
            listener.setblocking(False)
            with suppress(BlockingIOError):
                listener.accept()
                return False
        files = {path.name: path.read_text() for path in self.folder.iterdir()}
        return files == {"secret": "keep this"} and self.victim.poll() is None

    def order(self, name: str, cell: Cell, *, is_control: bool, is_landlocked: bool = False) -> Order:
        return Order(
            name=name,
            is_control=is_control,
            is_landlocked=is_landlocked,
            folder=str(self.folder),
            port=self.port,
            victim=self.victim.pid,
            parent=parent_of(cell.pid),
            number=MEGABYTES_TRIED,
        )


@pytest.fixture(autouse=True)
def processes() -> None:
    """The warm parent that the first test starts serves the whole module."""


@pytest.fixture(autouse=True)
def modules() -> None:
    """Only two tests write an entry, and where to is their own business."""


class Warm(Record, frozen=True):
    """Warm parents of one user, as they are and with all their rights; without bubblewrap around them."""

    user: str
    forker: Forker
    loose: Forker


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=USERS)
async def warm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Warm]:
    folder, user = tmp_path_factory.mktemp("attacks"), request.param
    name, code = ("as_nobody", UNPRIVILEGED) if user == "nobody" else ("as_we_are", AS_WE_ARE)
    (folder / f"{name}.py").write_text(code)
    (folder / f"loose_{name}.py").write_text(code + LOOSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        async with (
            Forker(f"{name}:serve", wrapper=()) as forker,
            Forker(f"loose_{name}:serve", wrapper=()) as loose,
        ):
            yield Warm(user, forker, loose)


@pytest.fixture
def scene(warm: Warm) -> Iterator[Scene]:
    made = Scene(warm.user)
    yield made
    made.close()


async def carry_out(order: Order, cell: Cell) -> Outcome | None:
    """What the cell says of an order; None if it says nothing any more."""
    loop = asyncio.get_running_loop()
    received = b""
    async with asyncio.timeout(SECONDS):
        await loop.sock_sendall(cell.socket, msgspec.msgpack.encode(order))
        with suppress(ConnectionError):
            while data := await loop.sock_recv(cell.socket, 65536):
                received += data
                if b"\n" in received and received.endswith(b"]"):
                    await loop.sock_sendall(cell.socket, b"this wakes whoever owns the socket")
                    return msgspec.json.decode(received.rpartition(b"\n")[2], type=Outcome)
    return None


async def ending(cell: Cell) -> Death:
    cell.socket.close()
    return await cell.wait(SECONDS)


@pytest.mark.parametrize("name", TRIED)
async def test_attack_fails_in_the_jail_and_its_end_is_named(warm: Warm, scene: Scene, name: str) -> None:
    async with await warm.forker.start(limits=LIMITS, is_jailed=True) as cell:
        outcome = await carry_out(scene.order(name, cell, is_control=False), cell)
        death = await ending(cell)
    expected = ATTACKS[name].jailed
    if expected in errno.errorcode.values():
        assert (outcome, death.ended) == (Outcome(False, expected), "exit")
    else:
        assert (outcome, death.ended) == (None, expected)
    assert scene.is_untouched()


@pytest.mark.parametrize("name", TRIED)
async def test_attack_works_outside_the_jail(warm: Warm, scene: Scene, name: str) -> None:
    attack = ATTACKS[name]
    async with await warm.loose.start(limits=ROOMY, is_jailed=False) as cell:
        outcome = await carry_out(scene.order(name, cell, is_control=True), cell)
        if outcome and outcome.worked:
            check_the_damage(name, scene)
        death = await ending(cell)
    assert what_happened(outcome, death) in {"it worked", *expected_errors(attack, scene)}


def check_the_damage(name: str, scene: Scene) -> None:
    if name.startswith("signal_"):
        assert scene.victim.wait(5) in (-signal.SIGTERM, -signal.SIGIO)
    if name in ("write_a_file", "fill_the_disk", "remove_a_file", "connect_by_tcp"):
        assert not scene.is_untouched()


def what_happened(outcome: Outcome | None, death: Death) -> str:
    if outcome is None:  # another program took its place, and ended well
        return "it worked" if death.ended == "exit" else death.detail
    return "it worked" if outcome.worked else outcome.error


def expected_errors(attack: Attack, scene: Scene) -> tuple[str, ...]:
    return attack.unless if scene.is_privileged else attack.unless + attack.unprivileged


BEHIND_LANDLOCK = {
    "read_a_file": "EACCES",
    "write_a_file": "EACCES",
    "remove_a_file": "EACCES",
    "read_from_proc": "EACCES",
    "execute": "EACCES",
    "connect_by_tcp": "EACCES",
    "connect_to_an_abstract_socket": "EPERM",
    "signal_by_kill": "EPERM",
    "signal_by_tgkill": "EPERM",
    "signal_by_pidfd": "EPERM",
    "trace_a_process": "EPERM",
}


@pytest.mark.skipif(kernel.landlock_abi() < 6, reason="this kernel's Landlock does not know signals")
@pytest.mark.parametrize("name", sorted(BEHIND_LANDLOCK))
async def test_landlock_stands_without_the_filter(warm: Warm, scene: Scene, name: str) -> None:
    """In a cell that goes behind Landlock by itself, and in one that is not jailed: its parent went there."""
    for forker in (warm.loose, warm.forker):
        async with await forker.start(limits=ROOMY, is_jailed=False) as cell:
            is_landlocked = forker is warm.loose
            order = scene.order(name, cell, is_control=True, is_landlocked=is_landlocked)
            assert await carry_out(order, cell) == Outcome(False, BEHIND_LANDLOCK[name])
    assert scene.is_untouched()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
async def test_warm_parent_of_root_has_no_rights_and_no_environment(
    warm: Warm,
) -> None:
    async with await warm.forker.start(limits=LIMITS, is_jailed=False) as cell:
        parent = parent_of(cell.pid)
        status = status_of(parent)
        environment = environment_of(parent)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(NOBODY)}
    assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert (status["Groups"], status["NoNewPrivs"]) == ("", "1")
    # What Python starts with, and what some shells add.
    assert environment <= {"PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.skipif(kernel.landlock_abi() < 6, reason="this kernel's Landlock does not know signals")
async def test_owner_of_a_socket_behind_landlock_signals_nobody(warm: Warm, scene: Scene) -> None:
    async with await warm.loose.start(limits=ROOMY, is_jailed=False) as cell:
        order = scene.order("signal_by_owning_the_socket", cell, is_control=True, is_landlocked=True)
        assert await carry_out(order, cell) == Outcome(True)
        await ending(cell)
    assert scene.is_untouched()


@pytest.mark.parametrize("name", sorted(ENDLESS))
async def test_endless_attack_is_ended_and_named(warm: Warm, scene: Scene, name: str) -> None:
    async with await warm.forker.start(limits=LIMITS, is_jailed=True) as cell:
        order = msgspec.msgpack.encode(scene.order(name, cell, is_control=False))
        await asyncio.get_running_loop().sock_sendall(cell.socket, order)
        # Garbage that nobody reads fills the socket and stops there; only the host ends that.
        death = await cell.wait(0.5 if ATTACKS[name].jailed == "killed" else SECONDS)
    assert death.ended == ATTACKS[name].jailed
    assert death.cpu_seconds < 3.5


# uretprobe and uprobe: newer kernels on x86_64 let them pass every filter. They do something only in a page
# that the kernel put there for a tracer; elsewhere they are refused.
PROBES = {335: "SIGILL", 336: "ENXIO"} if os.uname().machine == "x86_64" else {}


async def test_every_other_system_call_of_the_kernel_ends_the_cell(warm: Warm) -> None:
    if warm.user == "nobody":
        pytest.skip("the filter is the same for every user")
    allowed = set(seccomp.MACHINES[os.uname().machine].numbers.values())
    for number in sorted(set(range(480)) - allowed):
        async with await warm.forker.start(limits=LIMITS, is_jailed=True) as cell:
            outcome = await carry_out(Order(name="call_by_number", number=number), cell)
            death = await ending(cell)
        if number in PROBES and death.ended != "violation":
            assert what_happened(outcome, death) == PROBES[number]
        else:
            assert (outcome, death.ended) == (None, "violation"), f"system call {number}"


async def test_jailed_process_has_nothing_open_no_rights_and_small_limits(warm: Warm) -> None:
    async with await warm.forker.start(limits=LIMITS, is_jailed=True) as cell:
        # Nothing tells from outside when a process is jailed but this.
        async with asyncio.timeout(SECONDS):
            while status_of(cell.pid)["Seccomp"] != "2":  # noqa: ASYNC110 - the kernel sets no event of ours
                await asyncio.sleep(0)
        status, limits = status_of(cell.pid), limits_of(cell.pid)
        if os.geteuid() == 0:  # others may not look
            assert open_in(cell.pid) == ["/dev/null"] * 3 + ["socket"]
            assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(NOBODY)}
            assert status["Groups"] == ""
        assert os.getsid(cell.pid) == cell.pid
    assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    names = ("open files", "file size", "processes", "locked memory", "core file size", "msgqueue size")
    assert {name: limits[name] for name in names} == dict.fromkeys(names, ("0", "0"))
    assert limits["cpu time"] == ("1", "2")
    assert limits["stack size"] == (str(jail.STACK_BYTES),) * 2
    assert LIMITS.memory_bytes < int(limits["address space"][0]) < LIMITS.memory_bytes + 512 * MEGABYTE


CAPABLE = f"""
import os
from sterna.runtime.cell import kernel
from tests.runtime.cell.attacks import serve
keep_capabilities = 8
kernel.prctl(keep_capabilities, 1)
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to hand down")
async def test_user_with_capabilities_has_none_in_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "capable.py").write_text(CAPABLE)
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    async with Forker("capable:serve", wrapper=()) as forker:
        for is_jailed in (False, True):
            async with await forker.start(limits=LIMITS, is_jailed=is_jailed) as cell:
                await carry_out(Order(name="take_memory_bit_by_bit"), cell)
                found.append(int(status_of(cell.pid)["CapPrm"], 16))
    assert found == [0, 0]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def environment_of(pid: int) -> set[str]:
    """The names of the variables with which a process was started."""
    lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return {line.partition("=")[0] for line in lines if line}


def open_in(pid: int) -> list[str]:
    links = Path(f"/proc/{pid}/fd").iterdir()
    return sorted(str(link.readlink()).split(":")[0] for link in links)


def limits_of(pid: int) -> dict[str, tuple[str, str]]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[4:26].strip(): (line[26:47].strip(), line[47:68].strip()) for line in lines}


# The filter, interpreted: both architectures, every number.

MACHINES = [pytest.param(machine, id=name) for name, machine in seccomp.MACHINES.items()]
ALLOW, KILL = seccomp.ALLOW, seccomp.KILL
word = st.integers(0, 2**32 - 1)


def verdict(machine: seccomp.Machine, number: int, *arguments: int, mark: int | None = None) -> int:
    """What the filter says to a call, by the rules of classic BPF."""
    given = (*arguments, *[0] * 6)[:6]
    data = struct.pack("=IIQ6Q", number, mark or machine.mark, 0, *given)
    code = list(struct.iter_unpack("=HBBI", seccomp.filter_of(machine)))
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
        else:
            assert operation == 0x06
            return int(operand)


@pytest.mark.parametrize("machine", MACHINES)
async def test_filter_kills_whatever_it_does_not_name(machine: seccomp.Machine) -> None:
    allowed = set(machine.numbers.values())
    assert set(machine.numbers) == set(seccomp.ALLOWED)
    for number in set(range(1100)) - allowed:
        assert verdict(machine, number) == KILL
    for number in allowed:
        assert verdict(machine, number | 0x4000_0000) == KILL  # x32
        assert verdict(machine, number, mark=0x4000_0003) == KILL  # i386
        assert verdict(machine, number, mark=0x4000_0028) == KILL  # 32-bit ARM


ARGUMENTS = [
    ("mmap", (0, 4096, 3, 0x22), True),
    ("mmap", (0, 4096, 0, 0x4022), True),
    ("mmap", (0, 4096, 7, 0x22), False),
    ("mmap", (0, 4096, 4, 0x22), False),
    ("mmap", (0, 4096, 3, 0x21), False),  # shared
    ("mmap", (0, 4096, 3, 0x02), False),  # of a file
    ("mmap", (0, 4096, 3, 0x32), False),  # over what is there
    ("mprotect", (4096, 4096, 1), True),
    ("mprotect", (4096, 4096, 5), False),
    ("mremap", (4096, 4096, 8192, 1), True),
    ("mremap", (4096, 4096, 8192, 3), False),
    ("madvise", (4096, 4096, 4), True),
    ("madvise", (4096, 4096, 100), False),
    ("futex", (4096, 0x80), True),
    ("futex", (4096, 0x189), True),
    ("futex", (4096, 0x86), False),  # lends priority
    ("sendto", (3, 4096, 1, 0), True),
    ("sendto", (3, 4096, 1, socket.MSG_NOSIGNAL), True),
    ("sendto", (3, 4096, 1, socket.MSG_OOB), False),
    ("sendto", (3, 4096, 1, 0, 4096, 16), False),
    ("sendto", (3, 4096, 1, 0, 1 << 32, 16), False),
    ("recvfrom", (3, 4096, 1, socket.MSG_WAITALL), True),
    ("recvfrom", (3, 4096, 1, socket.MSG_OOB), False),
    ("recvfrom", (3, 4096, 1, 0, 4096, 4096), False),
    *[("clock_gettime", (clock,), True) for clock in range(4)],
    ("clock_gettime", (cpu_clock_of(1) & 2**64 - 1,), False),
    ("clock_gettime", (cpu_clock_of(1) & 2**32 - 1,), False),
    ("clock_gettime", (11,), False),
    ("clock_nanosleep", (1, 1, 4096), True),
    ("clock_nanosleep", (cpu_clock_of(1) & 2**64 - 1, 1, 4096), False),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "is_allowed"), ARGUMENTS)
async def test_filter_looks_at_arguments(
    machine: seccomp.Machine, name: str, arguments: tuple[int, ...], is_allowed: bool
) -> None:
    assert verdict(machine, machine.numbers[name], *arguments) == (ALLOW if is_allowed else KILL)


@pytest.mark.parametrize("machine", MACHINES)
@given(protection=word, flags=word, where=st.integers(0, 2**64 - 1))
async def test_no_arguments_make_executable_or_shared_memory(
    machine: seccomp.Machine, protection: int, flags: int, where: int
) -> None:
    if verdict(machine, machine.numbers["mmap"], where, 4096, protection, flags) == ALLOW:
        assert not protection & 4
        assert flags & 0x23 == 0x22
    if verdict(machine, machine.numbers["mprotect"], where, 4096, protection) == ALLOW:
        assert not protection & 4


# What the machine offers.


async def test_protection_is_really_tried() -> None:
    offered = protection()
    assert offered.has_seccomp == (seccomp.why_not() == "")
    assert offered.landlock_abi == kernel.landlock_abi()
    assert offered.has_bubblewrap <= bool(offered.bubblewrap)
    assert (offered.bubblewrap == "") == any(
        "bubblewrap is not installed" in word for word in offered.missing
    )
    assert offered.is_root == (os.geteuid() == 0)
    assert offered.kernel.startswith("Linux ")


async def test_protection_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "_TRIAL", "print('the kernel has no seccomp filter')")
    monkeypatch.setattr(kernel, "landlock_abi", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/false")
    offered = protection()
    assert (offered.has_seccomp, offered.landlock_abi, offered.has_bubblewrap) == (False, 0, False)
    assert offered.missing == (
        "the kernel has no seccomp filter: foreign crawlers are refused, your own run without a jail",
        "the kernel has no Landlock: the seccomp filter alone denies files to cells",
        "/bin/false does not work here: no namespaces around the cells",
    )


async def test_trial_that_survives_is_no_protection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "_TRIAL", "import os; os.getppid()")
    offered = protection()
    assert not offered.has_seccomp
    assert "the jail does not hold here" in offered.missing[0]


async def test_unknown_machine_is_refused_in_clear_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "MACHINES", {"pdp11": seccomp.MACHINES["x86_64"]})
    with pytest.raises(JailError, match=r"cannot sandbox a process: no filter of system calls for"):
        jail.enter(JailLimits(), keep=3, parent=os.getppid(), inherited_bytes=0)


async def test_kernel_without_landlock_is_left_with_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(kernel, "landlock_abi", lambda: 0)
    monkeypatch.setattr(kernel, "call", lambda number, *_: calls.append(number))
    kernel.restrict_by_landlock()
    assert calls == []


PATIENT = """
import clips

def serve(sock):
    sock.sendall(str(clips.Environment().eval("(+ 1 2)")).encode())
    sock.recv(1)  # stay until the host has looked
"""


async def test_memory_that_can_be_run_cannot_be_written_in_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a jailed process shows its memory to root only")
    (tmp_path / "patient.py").write_text(PATIENT)
    monkeypatch.syspath_prepend(tmp_path)
    async with (
        Forker("patient:serve", wrapper=()) as forker,
        await forker.start(limits=LIMITS, is_jailed=True) as cell,
    ):
        await asyncio.get_running_loop().sock_recv(cell.socket, 1)
        pages = pages_of(cell.pid)
    assert "r-xp" in pages
    assert not any(kind.startswith("rwx") for kind in pages)


def pages_of(pid: int) -> set[str]:
    return {line.split()[1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
