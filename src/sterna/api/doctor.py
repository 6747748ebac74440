"""What protection this machine offers against foreign crawlers, tried with an engine, and how it reads."""

import asyncio
import time

from msgspec.structs import asdict

from sterna.errors import JailError
from sterna.runtime.cell.jail import JailLimits, Protection, protection
from sterna.runtime.cell.pool import Forker
from sterna.web.native.build import SLOWER
from sterna.web.native.reader import why_not

TRIAL = "sterna.runtime.engine.worker:serve_trial"
TRIAL_SECONDS = 20.0


class Report(Protection, frozen=True, array_like=False, kw_only=True):
    """The same, and what it comes to."""

    takes_foreign_crawlers: bool
    runs_own_crawlers: bool
    start_milliseconds: float  # of an engine in the sandbox, or without one if there is none
    reads_in_c: bool  # pages, which takes half the time


async def examine() -> Report:
    """Starts engines with and without the sandbox."""
    offered = await asyncio.to_thread(protection)
    async with Forker(TRIAL) as forker:
        jailed_took, jail_trouble = await _try_engine(forker, is_jailed=True)
        plain_took, trouble = await _try_engine(forker, is_jailed=False)
    missing = list(offered.missing)
    if offered.has_seccomp and jail_trouble:
        missing.append(f"no engine starts in the jail: {jail_trouble}")
    if trouble:
        missing.append(f"no engine starts at all: {trouble}")
    if reason := why_not():
        missing.append(f"{reason}: {SLOWER} (apt install gcc libc6-dev, then install Sterna again)")
    return Report(
        **asdict(offered) | {"missing": tuple(missing)},
        takes_foreign_crawlers=offered.has_seccomp and not jail_trouble,
        runs_own_crawlers=not trouble,
        start_milliseconds=round(jailed_took or plain_took, 1),
        reads_in_c=offered.has_seccomp and not reason,
    )


async def _try_engine(forker: Forker, *, is_jailed: bool) -> tuple[float, str]:
    """How many milliseconds the second engine took (the first waits for its parent), or what went wrong."""
    took = 0.0
    for _ in range(2):
        begun = time.perf_counter()
        try:
            async with await forker.start(limits=JailLimits(), is_jailed=is_jailed) as cell:
                async with asyncio.timeout(TRIAL_SECONDS):
                    answer = await asyncio.get_running_loop().sock_recv(cell.socket, 100)
                took = (time.perf_counter() - begun) * 1000
                death = await cell.wait()
        except (JailError, TimeoutError) as error:
            return 0.0, str(error) or "it does not answer"
        if not answer or death.ended != "exit":
            return 0.0, f"{death.ended}: {death.detail}"
    return took, ""
