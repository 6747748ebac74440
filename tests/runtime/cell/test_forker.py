"""The warm parent of cells: as its host meets it, and its own side of the line."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from tests.killing import children_of
from tests.runtime.cell.obeying import LIMITS, LOOPS, SECONDS, Loop, ends, hear, parent_of, say, started

from sterna.errors import JailError
from sterna.runtime.cell import pool
from sterna.runtime.cell.forker import Died, Failed, Ready, Report, Request, Started
from sterna.runtime.cell.jail import protection
from sterna.runtime.cell.pool import Forker

STUBBORN = """
def serve(sock):
    try:
        sock.send(b"!")
    finally:
        while True:
            pass
"""


@pytest.mark.parametrize("run", LOOPS)
def test_warm_parent_that_died_is_followed_by_another(run: Loop) -> None:
    async def kill_parent() -> None:
        async with Forker("obedient:serve", wrapper=()) as warm:
            async with await started(warm) as first:
                os.kill(parent_of(first.pid), signal.SIGKILL)
                # The next one is asked for before anybody has heard of the death.
                async with await started(warm) as second:
                    assert await say(second, "hello") == "hello"
                    death = await first.wait()
            assert (death.ended, death.detail) == ("killed", "the warm parent died")

    run(kill_parent())


async def test_warm_parent_that_dies_before_its_first_cell_is_followed_by_another(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Forker("obedient:serve", wrapper=()) as warm:
        spawn, deaths = warm._spawn, iter((True, True))

        async def spawn_and_kill() -> pool._Parent:
            parent = await spawn()
            if next(deaths, False):
                os.kill(parent._process.pid, signal.SIGKILL)
                while not parent.is_over:  # noqa: ASYNC110 - it is heard of before the first cell is asked for
                    await asyncio.sleep(0)
            return parent

        monkeypatch.setattr(warm, "_spawn", spawn_and_kill)
        async with await started(warm) as cell:
            assert await say(cell, "hello") == "hello"


async def test_cell_that_nobody_waits_for_any_more_is_killed(modules: Path) -> None:
    (modules / "stubborn.py").write_text(STUBBORN)
    async with Forker("stubborn:serve") as warm, await started(warm) as cell:
        siblings = Path(f"/proc/{parent_of(cell.pid)}/task/{parent_of(cell.pid)}/children")
        waiting = asyncio.create_task(warm.start(limits=LIMITS, is_jailed=True))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with await started(warm):  # reports come in their order: the other was started by now
            async with asyncio.timeout(SECONDS):
                while len(siblings.read_text().split()) > 2:  # noqa: ASYNC110, ASYNC240 - no event tells it
                    await asyncio.sleep(0)


async def test_entry_that_cannot_be_imported_is_told_in_words(modules: Path) -> None:
    (modules / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    for entry, words in {
        "no_such_module:serve": "No module named 'no_such_module'",
        "obedient:no_such_function": "no_such_function",
        "threaded:serve": "threaded starts threads when it is imported",
    }.items():
        async with Forker(entry) as warm:
            with pytest.raises(
                JailError, match=f"cannot start a cell: its program failed to import: .*{words}"
            ):
                await warm.start(limits=LIMITS, is_jailed=True)


async def test_machine_without_seccomp_refuses_to_jail_and_runs_the_rest(modules: Path) -> None:
    (modules / "old_kernel.py").write_text(
        "from obedient import serve\n"
        "from sterna.runtime.cell import seccomp\n"
        "seccomp.why_not = lambda: 'the kernel has no seccomp filter'\n"
    )
    async with Forker("old_kernel:serve") as warm:
        with pytest.raises(JailError, match="cannot sandbox a process: the kernel has no seccomp filter"):
            await warm.start(limits=LIMITS, is_jailed=True)
        async with await started(warm, is_jailed=False) as cell:
            assert await say(cell, "hello") == "hello"


async def test_jail_that_fails_halfway_lets_nothing_run(modules: Path) -> None:
    (modules / "halfway.py").write_text(
        "from obedient import serve\ndef prepare(is_jailed):\n    raise OSError(12, 'no memory')\n"
    )
    async with Forker("halfway:serve") as warm, await warm.start(limits=LIMITS, is_jailed=True) as cell:
        assert await hear(cell) == ""
        death = await cell.wait()
    assert death.ended == "crash"
    assert death.detail == "cannot sandbox a process: [Errno 12] no memory; see `sterna doctor`"


@pytest.mark.parametrize("wrapper", [("/bin/false",), ("/no/such/program",)])
async def test_wrapper_that_does_not_work_is_left_out(wrapper: tuple[str, ...]) -> None:
    async with Forker("obedient:serve", wrapper=wrapper) as warm, await started(warm) as cell:
        assert await say(cell, "hello") == "hello"


@pytest.mark.parametrize("how", ["parent", "wrapper"])
async def test_warm_parent_that_is_killed_as_it_starts_is_started_again_in_its_wrapper(
    how: str, modules: Path
) -> None:
    wrapper = modules / "wrapper"
    is_second = f"test -e {modules}/once || {{ touch {modules}/once; kill -KILL $$; }}\n"
    run = '"$@"; exit $((128 + 9))' if how == "parent" else 'exec "$@"'
    first = "" if how == "parent" else is_second
    wrapper.write_text(f"#!/bin/sh\necho >> {modules}/starts\n{first}{run}\n")
    wrapper.chmod(0o755)
    (modules / "mortal.py").write_text(f"""
import os, pathlib, signal
if {how == "parent"} and not (once := pathlib.Path({str(modules / "once")!r})).exists():
    once.touch()
    os.kill(os.getpid(), signal.SIGKILL)
from obedient import serve
""")
    async with Forker("mortal:serve", wrapper=(str(wrapper),)) as warm, await started(warm) as cell:
        assert await say(cell, "hello") == "hello"
    assert (modules / "starts").read_text() == "\n\n"  # both times


async def test_warm_parent_that_is_always_killed_is_given_up(modules: Path) -> None:
    (modules / "doomed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    async with Forker("doomed:serve", wrapper=()) as warm:
        with pytest.raises(JailError, match="cannot start the warm parent of doomed:serve"):
            await started(warm)


@pytest.mark.usefixtures("own_processes")
async def test_stopped_warm_parent_ends_with_its_wrapper(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.2)
    wrapper = modules / "wrapper"
    wrapper.write_text('#!/bin/sh\n"$@"\nexit\n')
    wrapper.chmod(0o755)
    before = set(children_of(os.getpid()))
    async with Forker("obedient:serve", wrapper=(str(wrapper),)) as warm:
        await warm.warm_parent()
        processes = [os.pidfd_open(pid) for pid in set(children_of(os.getpid())) - before]
        for process in processes:
            signal.pidfd_send_signal(process, signal.SIGSTOP)
    assert len(processes) == 2
    assert all(map(ends, processes))


async def test_wrapper_that_works_is_used(modules: Path) -> None:
    wrapper = modules / "wrapper"
    wrapper.write_text(f'#!/bin/sh\ntouch {modules}/used\nexec "$@"\n')
    wrapper.chmod(0o755)
    async with Forker("obedient:serve", wrapper=(str(wrapper),)) as warm, await started(warm) as cell:
        assert await say(cell, "hello") == "hello"
    assert (modules / "used").exists()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_bubblewrap_takes_the_network_away_where_it_works() -> None:
    async with Forker("obedient:serve") as warm, await started(warm, is_jailed=False) as cell:
        is_elsewhere = await say(cell, "network") != str(Path("/proc/self/ns/net").readlink())  # noqa: ASYNC240
    assert is_elsewhere == protection().has_bubblewrap


async def test_closed_forker_starts_nothing() -> None:
    async with Forker("obedient:serve") as warm, await started(warm):
        pass
    with pytest.raises(JailError, match="the forker is closed"):
        await warm.start(limits=LIMITS, is_jailed=True)


async def test_warm_parent_that_never_gets_ready_is_given_up(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "endless.py").write_text("import signal; signal.pause()")
    monkeypatch.setattr(pool, "READY_SECONDS", 0.5)
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.1)
    async with Forker("endless:serve", wrapper=()) as warm:
        with pytest.raises(
            JailError, match=r"cannot start the warm parent of endless:serve \(not ready after 0\.5 seconds\)"
        ):
            await warm.start(limits=LIMITS, is_jailed=True)


# The forker's own side of the line.


@contextmanager
def forking() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A forker's process and the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(SECONDS)
    command = [sys.executable, "-P", "-m", "sterna.runtime.cell.forker", "obedient:serve"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ours, subprocess.Popen(command, stdin=theirs.fileno(), env=environment) as process:
        theirs.close()
        assert report(ours) == Ready("")
        yield process, ours
        ours.close()
        process.wait(SECONDS)


def report(line: socket.socket) -> Report:
    data, descriptors, _, _ = socket.recv_fds(line, 65536, 4)
    for descriptor in descriptors:
        os.close(descriptor)
    return msgspec.msgpack.decode(data, type=Report)  # type: ignore[no-any-return]


def ask(line: socket.socket, number: int, *descriptors: int, is_jailed: bool = True) -> None:
    request = msgspec.msgpack.encode(Request(number, LIMITS, is_jailed))
    socket.send_fds(line, [request], list(descriptors))


@contextmanager
def busy_cell(line: socket.socket, *, is_jailed: bool = True) -> Iterator[int]:
    """The descriptor of a cell's process that will not end by itself."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            ask(line, 1, theirs.fileno(), is_jailed=is_jailed)
        answer = report(line)
        assert isinstance(answer, Started)
        process = os.pidfd_open(answer.pid)
        try:
            assert ours.recv(1) == b"!"
            ours.send(b"spin")
            yield process
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            os.close(process)


def test_forker_survives_garbage() -> None:
    with forking() as (process, line):
        for garbage in (b"\xff\xff", b"\0" * 60_000, msgspec.msgpack.encode({"fork": "bomb"})):
            line.send(garbage)
            answer = report(line)
            assert isinstance(answer, Failed)
            assert "malformed request" in answer.words
        ask(line, 7)
        assert report(line) == Failed(7, "cannot start a cell: no socket came along")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ask(line, 8, theirs.fileno(), theirs.fileno())
            assert report(line) == Failed(8, "cannot start a cell: more than one descriptor came along")
        with busy_cell(line) as cell:
            signal.pidfd_send_signal(cell, signal.SIGTERM)
            died = report(line)
        assert isinstance(died, Died)
        assert (died.number, died.status) == (1, signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.parametrize("is_jailed", [True, False])
def test_forker_ends_its_cells_when_the_host_hangs_up(is_jailed: bool) -> None:
    with forking() as (process, line), busy_cell(line, is_jailed=is_jailed) as cell:
        line.close()
        assert ends(cell)
    assert process.returncode == 0


@pytest.mark.parametrize("is_jailed", [True, False])
def test_cell_ends_with_a_forker_that_is_killed(is_jailed: bool) -> None:
    with forking() as (process, line), busy_cell(line, is_jailed=is_jailed) as cell:
        process.kill()
        assert ends(cell)


@pytest.mark.parametrize("entry", ["json:loads", "no_such_module:serve"])
def test_warm_parent_whose_host_is_gone_before_all_is_loaded_ends_without_a_word(entry: str) -> None:
    host, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    host.close()
    with line:
        command = [sys.executable, "-P", "-m", "sterna.runtime.cell.forker", entry]
        done = subprocess.run(
            command, stdin=line.fileno(), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
