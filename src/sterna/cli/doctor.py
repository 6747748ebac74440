"""`sterna doctor`: what protection this machine offers against foreign crawlers, really tried."""

import asyncio
import sys
import time
from typing import Annotated

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell.jail import JailLimits, Protection, protection
from sterna.runtime.cell.pool import Forker

TRIAL = "sterna.runtime.engine.worker:serve_trial"
TRIAL_SECONDS = 20.0


class Engine(Record, frozen=True):
    """How long an engine took to answer, or why it did not."""

    milliseconds: float = 0.0
    trouble: str = ""


class Report(Record, frozen=True, array_like=False, kw_only=True):
    """What the doctor found."""

    takes_foreign_crawlers: bool
    runs_own_crawlers: bool
    start_milliseconds: float  # of an engine in the jail, or without one where there is none
    has_seccomp: bool
    landlock_abi: int
    bubblewrap: str
    has_bubblewrap: bool
    is_root: bool
    kernel: str
    machine: str
    missing: tuple[str, ...]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Tell what protection this machine offers, and whether it can take foreign crawlers."""
    report = asyncio.run(_examine())
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(report)) + "\n")
    if not report.takes_foreign_crawlers:
        raise typer.Exit(int(Exit.NOTHING))


async def _examine() -> Report:
    offered = await asyncio.to_thread(protection)
    async with Forker(TRIAL) as forker:
        jailed = await _try_engine(forker, is_jailed=True)
        plain = await _try_engine(forker, is_jailed=False)
    return _report(offered, jailed, plain)


async def _try_engine(forker: Forker, *, is_jailed: bool) -> Engine:
    """The second engine counts: the first one waits for its warm parent."""
    took = Engine()
    for _ in range(2):
        begun = time.perf_counter()
        try:
            async with await forker.start(limits=JailLimits(), is_jailed=is_jailed) as cell:
                async with asyncio.timeout(TRIAL_SECONDS):
                    answer = await asyncio.get_running_loop().sock_recv(cell.socket, 100)
                took = Engine((time.perf_counter() - begun) * 1000)
                death = await cell.wait()
        except (JailError, TimeoutError) as error:
            return Engine(trouble=str(error) or "it does not answer")
        if not answer or death.ended != "exit":
            return Engine(trouble=f"{death.ended}: {death.detail}")
    return took


def _report(offered: Protection, jailed: Engine, plain: Engine) -> Report:
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


def _lines(report: Report) -> list[str]:
    landlock = f"ABI {report.landlock_abi}" if report.landlock_abi else "none"
    bubblewrap = "works" if report.has_bubblewrap else "does not work" if report.bubblewrap else "none"
    rows = {
        "kernel": f"{report.kernel}, {report.machine}",
        "user": "root; engines run as nobody" if report.is_root else "an ordinary user",
        "seccomp": "works" if report.has_seccomp else "does not work",
        "Landlock": landlock,
        "bubblewrap": bubblewrap,
        "CLIPS engine": f"starts in {report.start_milliseconds:.1f} ms"
        if report.runs_own_crawlers
        else "none",
        "own crawlers": "run" if report.runs_own_crawlers else "cannot run with rules",
        "foreign crawlers": "can be taken" if report.takes_foreign_crawlers else "are refused",
    }
    return [
        *(f"{name:<17} {words}" for name, words in rows.items()),
        *(f"missing: {each}" for each in report.missing),
    ]
