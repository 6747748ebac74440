"""Inputs read in processes of their own, so that a crash, a hang and their memory can be told."""

import multiprocessing
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.fuzz_parts.results import Part, Results

MOST_SECONDS = 10.0  # for one input
STALLED_SECONDS = 60.0  # without another input: the process hangs
MOST_BYTES = 400_000_000  # of the whole process

Work = Callable[[Sequence[Part], Path, "Course"], None]


class Course:
    """How far a process is, for its parent, and what it found; changed by the process that works."""

    def __init__(self, at: Any) -> None:
        self.results = Results()
        self._at = at  # shared: the place among the parts, the number, the time

    def begin(self, place: int, number: int) -> None:
        self._at[:] = (float(place), float(number), time.monotonic())

    def end(self, part: Part, number: int, answer: str) -> None:
        """Counts an input that was answered, begun last."""
        seconds = time.monotonic() - self._at[2]
        self.results.tally(part.kind).add(number, answer, seconds)
        if seconds > MOST_SECONDS:
            self.results.fault(part.kind, number, f"took {seconds:.1f} s")

    def fault(self, part: Part, number: int, error: BaseException) -> None:
        where = traceback.format_exception(error)[-2].strip().replace("\n", " ")
        self.results.fault(part.kind, number, f"{error!r:.300} {where}")


@dataclass
class _Process:
    """A process, its share of the inputs, and how it is heard of."""

    process: BaseProcess
    parts: Sequence[Part]
    at: Any
    told: Any

    def fault(self, results: Results, what: str) -> None:
        place, number, _ = self.at
        results.fault(self.parts[int(place)].kind, int(number), what)


def work_apart(work: Work, shares: Sequence[Sequence[Part]], folder: Path, results: Results) -> None:
    """Each share in a process, all of them at the same time, and what must hold afterwards."""
    context = multiprocessing.get_context("spawn")
    processes = []
    for number, parts in enumerate(shares):
        own = folder / str(number)
        own.mkdir(parents=True)
        at, told = context.Array("d", [0.0, -1.0, time.monotonic()]), context.Queue()
        process = context.Process(target=_run, args=(work, parts, own, at, told))
        process.start()
        processes.append(_Process(process, parts, at, told))
    for each in processes:
        _wait(each, results)


def _run(work: Work, parts: Sequence[Part], folder: Path, at: Any, told: Any) -> None:
    course = Course(at)
    work(parts, folder, course)
    told.put((course.results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def _wait(each: _Process, results: Results) -> None:
    while each.process.is_alive() and each.told.empty():
        if time.monotonic() - each.at[2] > STALLED_SECONDS:
            each.process.kill()
            each.fault(results, f"no end within {STALLED_SECONDS:g} s")
            return
        time.sleep(0.1)
    if each.told.empty():
        each.fault(results, f"the process ended with code {each.process.exitcode}")
        return
    found, peak_bytes = each.told.get()
    results.merge(found)
    each.process.join()
    how = f"{peak_bytes >> 20} MiB, {MOST_BYTES >> 20} at most"
    kinds = {part.kind.partition(":")[0].partition(",")[0] for part in each.parts}
    results.check(f"memory, {', '.join(sorted(kinds))}", how, is_good=peak_bytes <= MOST_BYTES)
