"""Throws inputs at a real host, as several homes at once, while another one wants nothing but its visits."""

import asyncio
import re
import time
from pathlib import Path

from bench.fuzz_parts import host_inputs
from bench.fuzz_parts.client import Client
from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.knocking import Knocker, Unclean, chance_of, followed, judged
from bench.fuzz_parts.results import Part, Results
from bench.fuzz_parts.spoiling import SITE
from bench.fuzz_parts.stage import HOMES, PAGES, HostProcess, Watch, quiet, running

from sterna.model import Budget, Target
from sterna.wire.orders import Agent, Send, seal_order

WORKERS = HOMES - 1  # the last home is the good one
ANSWER_SECONDS = 60.0  # for anything, a whole visit of ten seconds that waits for its place too
GREETING_SECONDS = 5.0  # for a good greeting meanwhile
MOST_LOG_BYTES = 100_000  # that strangers may have it write
MOST_BYTES = 700 << 20  # of all its processes: itself, two readers, four engines of 96 MiB, orders
SILENT, SILENT_SECONDS = 200, 90.0  # connections that say nearly nothing, and when they should be closed
_PROPER = re.compile(rb"HTTP/1\.[01] (?:1\d\d|2\d\d|4\d\d|501|503|505) ")


async def besiege(parts: list[Part], folder: Path, results: Results) -> None:
    """All parts, one after the other, and what must hold afterwards."""
    with running(folder) as host:
        watch = Watch(host)
        watch.start()
        good = _GoodHome(host)
        meanwhile = asyncio.create_task(good.go_on())
        silent = asyncio.create_task(_say_nothing(host.port))
        for part in parts:
            print(f"{part.kind}: {part.count:,}", flush=True)
            workers = [asyncio.create_task(_work(part, worker, host, results)) for worker in range(WORKERS)]
            await asyncio.gather(*workers)
            if not host.is_alive:
                results.check("the host is alive", f"it ended in {part.kind!r}", is_good=False)
                break
        meanwhile.cancel()
        await asyncio.gather(meanwhile, return_exceptions=True)
        good.tell(results)
        await _check_silent(silent, results)
        await _check(host, watch, results)


async def _work(part: Part, worker: int, host: HostProcess, results: Results) -> None:
    """Every so manieth input of a part, as one home."""
    tally = results.tally(part.kind)
    async with Client(host.port, seconds=ANSWER_SECONDS) as client:
        knocker = Knocker(client.ask, host.homes[worker], host.key)
        for number in range(part.first + worker, part.first + part.count, WORKERS):
            chance, began = chance_of(part.seed, part.kind, number), time.monotonic()
            try:
                answer = (
                    _judged_bytes(await client.throw(host_inputs.http(chance))) if part.kind == "http" else ""
                )
                answer = answer or await knocker.knock(part.kind, chance)
            except (Unclean, OSError) as error:
                results.fault(part.kind, number, str(error) or repr(error))
                knocker.forget()
                if not host.is_alive:
                    return
            else:
                tally.add(number, answer, time.monotonic() - began)


def _judged_bytes(raw: bytes) -> str:
    """The first status of what came back to bytes that may have been HTTP; Unclean if that is none."""
    if not raw:
        return "closed"
    if not _PROPER.match(raw):
        raise Unclean(f"answered with {raw[:200]!r}")
    return f"http {raw.split()[1].decode()}"


class _GoodHome:
    """Greets and sends its crawler all the time; nobody else's mischief may keep it from that for long."""

    def __init__(self, host: HostProcess) -> None:
        self._host = host
        self._longest_seconds = 0.0
        self._visits = 0
        self._faults: list[str] = []

    async def go_on(self) -> None:
        async with Client(self._host.port, seconds=ANSWER_SECONDS) as client:
            knocker = Knocker(client.ask, self._host.homes[-1], self._host.key)
            while True:
                try:
                    await self._visit(client, knocker)
                except Unclean as error:
                    self._faults.append(str(error))
                await asyncio.sleep(1.0)

    async def _visit(self, client: Client, knocker: Knocker) -> None:
        began = time.monotonic()
        self._visits += 1
        session = await knocker.greet()
        self._longest_seconds = max(self._longest_seconds, time.monotonic() - began)
        order = good_order(f"good-{self._visits}")
        said = await client.ask(Knock("order", seal_order(session.keys, session.ticket, order)))
        answer = judged(said)
        if answer not in ("ok", "busy"):
            raise Unclean(f"a good order was answered with {answer}")
        if answer == "ok" and (ended := followed(said, session)) != "visit: finished":
            raise Unclean(f"a good visit ended so: {ended}")

    def tell(self, results: Results) -> None:
        longest, faults = self._longest_seconds, self._faults
        how = f"{longest:.1f} s at the longest, {GREETING_SECONDS:g} at most"
        results.check("a good greeting meanwhile", how, is_good=longest <= GREETING_SECONDS)
        how = f"{self._visits - len(faults)} of {self._visits}" + (
            f"; the first: {faults[0]}" if faults else ""
        )
        results.check("good visits meanwhile", how, is_good=not faults)


def good_order(visit: str) -> Send:
    """A visit to the whole site."""
    return Send(
        visit=visit, agent=Agent("Tern/1", "Tern"), starts=(Target(f"{SITE}/"),), budget=Budget(seconds=10.0)
    )


async def _say_nothing(port: int) -> int:
    """Opens many connections, each with a letter now and then; how many are still open at last."""
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SILENT)]
    ends_at = time.monotonic() + SILENT_SECONDS
    while time.monotonic() < ends_at:
        for _, writer in pairs:
            if not writer.is_closing():
                writer.write(b"P" if time.monotonic() < ends_at - SILENT_SECONDS / 2 else b"")
        await asyncio.sleep(SILENT_SECONDS / 6)
    still_open = sum(not reader.at_eof() for reader, _ in pairs)
    for _, writer in pairs:
        writer.transport.abort()
    return still_open


async def _check_silent(silent: "asyncio.Task[int]", results: Results) -> None:
    still_open = await silent
    how = f"{still_open} of {SILENT} still open after {SILENT_SECONDS:g} s"
    results.check("connections that say nothing are closed", how, is_good=not still_open)


async def _check(host: HostProcess, watch: Watch, results: Results) -> None:
    """What must hold when all is over."""
    async with Client(host.port, seconds=ANSWER_SECONDS) as client:
        knocker = Knocker(client.ask, host.homes[-1], host.key)
        try:
            session = await knocker.greet()
            said = await client.ask(
                Knock("order", seal_order(session.keys, session.ticket, good_order("last")))
            )
            how = followed(said, session) if judged(said) == "ok" else judged(said)
        except (Unclean, OSError) as error:
            how = str(error)
    results.check(f"a good visit afterwards, {PAGES + 1} pages", how, is_good=how == "visit: finished")
    is_quiet = await quiet(host, seconds=60.0)
    how = f"{host.processes()} processes besides the host, {host.visits_kept()} visits kept"
    results.check("nothing is left behind", how, is_good=is_quiet)
    tracebacks = host.tracebacks()
    how = f"{len(tracebacks)} tracebacks" + (f"; the first: {tracebacks[0]}" if tracebacks else "")
    results.check("no fault in its log", how, is_good=not tracebacks)
    size, most = host.errors.stat().st_size, MOST_LOG_BYTES
    results.check("its log is short", f"{size:,} bytes, {most:,} at most", is_good=size <= most)
    code, peak_bytes = host.end(), watch.stop()
    results.check("it ends when it is told to", f"code {code}", is_good=code == 0)
    left = watch.left_behind()
    results.check("no process outlives it", f"{len(left)} left", is_good=not left)
    how = f"{peak_bytes >> 20} MiB, {MOST_BYTES >> 20} at most"
    results.check("memory of all its processes (PSS)", how, is_good=peak_bytes <= MOST_BYTES)
