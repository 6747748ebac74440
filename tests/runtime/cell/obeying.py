"""A cell that does as it is told, and what its host says to it and hears of it."""

import asyncio
import select
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Cell, Forker

Loop = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
LIMITS = JailLimits(memory_bytes=1024**3, cpu_seconds=60)
SECONDS = 20

# A cell that does as it is told, a word at a time; nothing may be imported once it is jailed.
OBEDIENT = """
import ctypes, os, threading, time

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
woken, answered = threading.Event(), threading.Event()

def prepare(is_jailed):
    threading.Thread(target=work, daemon=True).start()

def work():
    woken.wait()
    # The C library must not look into /proc when it gives a thread's memory back.
    for block in [libc.malloc(60000) for _ in range(500)]:
        libc.free(ctypes.c_void_p(block))
    answered.set()

def serve(sock):
    sock.sendall(b"!")
    while word := sock.recv(100).decode():
        if word == "end":
            return
        if word == "raise":
            raise ValueError(word)
        if word == "crash":
            ctypes.string_at(8)
        if word == "exit":
            os._exit(3)
        if word == "spin":
            while True:
                pass
        if word == "wake":
            woken.set()
            answered.wait(10)
        if word == "clock":
            time.sleep(0.001), time.process_time(), libc.localtime(ctypes.byref(ctypes.c_long(0)))
        if word == "compute":
            begun = time.process_time()
            while time.process_time() < begun + 0.2:
                pass
        if word == "take":
            taken = bytearray(b"x") * 2**24
        if word == "network":
            word = os.readlink("/proc/self/ns/net")
        if word == "environment":
            word = ",".join(os.environ) or "nothing"
        if word == "error":
            try:
                raise ValueError(word)
            except ValueError:
                threading.excepthook(threading.ExceptHookArgs((*__import__("sys").exc_info(), None)))
        sock.sendall(word.encode())
"""


def children() -> set[int]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in children_of(task)}


def children_of(task: Path) -> list[int]:
    try:
        return [int(pid) for pid in (task / "children").read_text().split()]
    except FileNotFoundError:  # a thread of the event loop that ended since the folder was listed
        return []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ends(process: int) -> bool:
    """Whether the process of this descriptor ends in time."""
    return bool(select.select([process], [], [], SECONDS)[0])


async def hear(cell: Cell) -> str:
    async with asyncio.timeout(SECONDS):
        return (await asyncio.get_running_loop().sock_recv(cell.socket, 1000)).decode()


async def say(cell: Cell, word: str) -> str:
    await asyncio.get_running_loop().sock_sendall(cell.socket, word.encode())
    with suppress(ConnectionError):
        return await hear(cell)
    return ""


async def started(warm: Forker, *, is_jailed: bool = True, limits: JailLimits = LIMITS) -> Cell:
    cell = await warm.start(limits=limits, is_jailed=is_jailed)
    assert await hear(cell) == "!"
    return cell
