"""Has home read what a lying host says, in a process of its own, so that its memory can be told."""

import asyncio
import multiprocessing
import resource
import time
import traceback
from pathlib import Path

from bench.fuzz_parts.answering import Answering
from bench.fuzz_parts.knocking import chance_of
from bench.fuzz_parts.reading import read
from bench.fuzz_parts.results import Part, Results
from bench.fuzz_parts.storing import Desk

MOST_SECONDS = 10.0  # for one input
MOST_BYTES = 512 << 20  # of the whole process


def deceive(parts: list[Part], folder: Path, results: Results) -> None:
    """All parts, one after the other, and what must hold afterwards."""
    context = multiprocessing.get_context("spawn")
    told: multiprocessing.Queue[Results | int] = context.Queue()
    process = context.Process(target=_read_all, args=(parts, folder, told))
    process.start()
    while process.is_alive() and told.empty():
        time.sleep(0.1)
    if told.empty():
        results.check("home survives", f"its process ended with code {process.exitcode}", is_good=False)
        return
    here = told.get()
    assert isinstance(here, Results)
    results.tallies |= here.tallies
    results.faults += here.faults
    peak_bytes = told.get()
    assert isinstance(peak_bytes, int)
    process.join()
    how = f"{peak_bytes >> 20} MiB, {MOST_BYTES >> 20} at most"
    results.check("memory of home's process", how, is_good=peak_bytes <= MOST_BYTES)


def _read_all(parts: list[Part], folder: Path, told: "multiprocessing.Queue[Results | int]") -> None:
    results = Results()
    for part in parts:
        print(f"{part.kind}: {part.count:,}", flush=True)
        asyncio.run(_read(part, folder, results))
    told.put(results)
    told.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


async def _read(part: Part, folder: Path, results: Results) -> None:
    tally = results.tally(part.kind)
    async with Answering() as answering, Desk(folder / part.kind) as desk:
        for number in range(part.first, part.first + part.count):
            chance, began = chance_of(part.seed, part.kind, number), time.monotonic()
            try:
                if part.kind == "http answer":
                    answer = await answering.call(chance)
                elif part.kind == "stored":
                    answer = await desk.take(chance)
                else:
                    answer = read(part.kind, chance)
            except Exception as error:  # whatever it is, it is what is looked for
                where = traceback.format_exception(error)[-2].strip().replace("\n", " ")
                results.fault(part.kind, number, f"{error!r:.300} {where}")
                continue
            seconds = time.monotonic() - began
            tally.add(number, answer, seconds)
            if seconds > MOST_SECONDS:
                results.fault(part.kind, number, f"took {seconds:.1f} s")
