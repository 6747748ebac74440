"""What protection this machine offers against foreign crawlers, tried with a real rule engine."""

import asyncio
import time

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell.jail import JailLimits, Protection, protection
from sterna.runtime.cell.pool import Forker

TRIAL = "sterna.runtime.engine.worker:serve_trial"
TRIAL_SECONDS = 20.0


class EngineTrial(Record, frozen=True):
    """How long an engine took to answer, or why it did not."""

    milliseconds: float = 0.0
    trouble: str = ""


class Report(Record, frozen=True, array_like=False, kw_only=True):
    """What this machine offers, and what is missing."""

    takes_foreign_crawlers: bool
    runs_own_crawlers: bool
    start_milliseconds: float  # of an engine in the sandbox, or without one if there is none
    has_seccomp: bool
    landlock_abi: int
    bubblewrap: str
    has_bubblewrap: bool
    is_root: bool
    kernel: str
    machine: str
    missing: tuple[str, ...]


async def examine() -> Report:
    """Starts engines with and without the sandbox."""
    offered = await asyncio.to_thread(protection)
    async with Forker(TRIAL) as forker:
        jailed = await _try_engine(forker, is_jailed=True)
        plain = await _try_engine(forker, is_jailed=False)
    return _report(offered, jailed, plain)


async def _try_engine(forker: Forker, *, is_jailed: bool) -> EngineTrial:
    """Measures the second engine: the first one waits for its parent process."""
    took = EngineTrial()
    for _ in range(2):
        begun = time.perf_counter()
        try:
            async with await forker.start(limits=JailLimits(), is_jailed=is_jailed) as cell:
                async with asyncio.timeout(TRIAL_SECONDS):
                    answer = await asyncio.get_running_loop().sock_recv(cell.socket, 100)
                took = EngineTrial((time.perf_counter() - begun) * 1000)
                death = await cell.wait()
        except (JailError, TimeoutError) as error:
            return EngineTrial(trouble=str(error) or "it does not answer")
        if not answer or death.ended != "exit":
            return EngineTrial(trouble=f"{death.ended}: {death.detail}")
    return took


def _report(offered: Protection, jailed: EngineTrial, plain: EngineTrial) -> Report:
    missing = list(offered.missing)
    if offered.has_seccomp and jailed.trouble:
        missing.append(f"no engine starts in the jail: {jailed.trouble}")
    if plain.trouble:
        missing.append(f"no engine starts at all: {plain.trouble}")
    fields = {name: getattr(offered, name) for name in Protection.__struct_fields__ if name != "missing"}
    return Report(
        takes_foreign_crawlers=offered.has_seccomp and not jailed.trouble,
        runs_own_crawlers=not plain.trouble,
        start_milliseconds=round(jailed.milliseconds or plain.milliseconds, 1),
        missing=tuple(missing),
        **fields,
    )
