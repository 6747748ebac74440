"""Cells end with whoever they belong to, and none is left behind."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from tests.runtime.cell.obeying import LOOPS, SECONDS, Loop, ends, parent_of, say, started

from sterna.runtime.cell.pool import Forker


@pytest.mark.parametrize("run", LOOPS)
def test_who_never_ends_is_killed_after_the_wait(run: Loop) -> None:
    async def spin() -> None:
        async with Forker("obedient:serve") as warm, await started(warm) as cell:
            await asyncio.get_running_loop().sock_sendall(cell.socket, b"spin")
            death = await cell.wait(0.05)
            cell.kill()  # nothing happens to the dead
        assert (death.ended, death.detail) == ("killed", "by its host")

    run(spin())


async def test_cell_that_somebody_else_kills_is_not_called_ours() -> None:
    async with Forker("obedient:serve") as warm, await started(warm) as cell:
        os.kill(cell.pid, signal.SIGKILL)
        death = await cell.wait()
    assert death.ended == "killed"
    assert death.detail.startswith("not by its host")


async def test_cell_ends_with_its_owner() -> None:
    async with Forker("obedient:serve") as warm:
        with pytest.raises(ZeroDivisionError):
            async with await started(warm) as cell:
                process = os.pidfd_open(cell.pid)
                _ = 1 / 0
        assert ends(process)
        assert cell.socket.fileno() == -1
    os.close(process)


async def test_cells_end_with_the_forker() -> None:
    async with Forker("obedient:serve") as warm:
        running = [await started(warm, is_jailed=is_jailed) for is_jailed in (True, False)]
        pids = [os.pidfd_open(cell.pid) for cell in running]
    assert all(map(ends, pids))
    assert [(await cell.wait()).ended for cell in running] == ["killed", "killed"]
    for cell, process in zip(running, pids, strict=True):
        cell.socket.close()
        os.close(process)


@pytest.mark.parametrize("is_jailed", [True, False])
def test_cell_ends_with_a_host_that_is_killed(is_jailed: bool) -> None:
    program = f"""
import asyncio, os, signal
from sterna.runtime.cell.pool import Forker
from sterna.runtime.cell.jail import JailLimits, protection

async def main():
    async with Forker("obedient:serve") as warm:
        cell = await warm.start(limits=JailLimits(), is_jailed={is_jailed})
        await asyncio.get_running_loop().sock_recv(cell.socket, 1)
        cell.socket.send(b"spin")
        print(cell.pid, flush=True)
        input()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as host:
        assert host.stdout
        assert host.stdin
        pid = int(host.stdout.readline())
        family = [os.pidfd_open(pid), os.pidfd_open(parent_of(pid))]
        host.stdin.write(b"\n")
        host.stdin.flush()
        assert host.wait(SECONDS) == -signal.SIGKILL
        assert all(map(ends, family))
    for process in family:
        os.close(process)


async def test_many_cells_run_beside_each_other() -> None:
    async with Forker("obedient:serve") as warm:
        running = await asyncio.gather(*(started(warm) for _ in range(50)))
        assert len({cell.pid for cell in running}) == 50
        assert await asyncio.gather(*(say(cell, f"I am {cell.pid}") for cell in running)) == [
            f"I am {cell.pid}" for cell in running
        ]
        await asyncio.gather(*(say(cell, "end") for cell in running))
        assert {(await cell.wait()).ended for cell in running} == {"exit"}
        for cell in running:
            cell.socket.close()


async def test_cells_leave_no_descriptor_behind() -> None:
    async with Forker("obedient:serve") as warm:
        counts = []
        for _ in range(3):
            async with await started(warm):
                pass
            counts.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    assert len(set(counts)) == 1
