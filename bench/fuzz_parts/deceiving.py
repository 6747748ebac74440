"""Has home read what a lying host says."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench.fuzz_parts.answering import Answering
from bench.fuzz_parts.apart import Course
from bench.fuzz_parts.knocking import chance_of
from bench.fuzz_parts.reading import read
from bench.fuzz_parts.results import Part
from bench.fuzz_parts.storing import Desk


def deceive(parts: Sequence[Part], folder: Path, course: Course) -> None:
    """All parts, one after the other."""
    for place, part in enumerate(parts):
        print(f"{part.kind}: {part.count:,}", flush=True)
        asyncio.run(_read(part, place, folder, course))


async def _read(part: Part, place: int, folder: Path, course: Course) -> None:
    async with Answering() as answering, Desk(folder / part.kind) as desk:
        for number in range(part.first, part.first + part.count):
            chance = chance_of(part.seed, part.kind, number)
            course.begin(place, number)
            try:
                if part.kind == "http answer":
                    answer = await answering.call(chance)
                elif part.kind == "stored":
                    answer = await desk.take(chance)
                else:
                    answer = read(part.kind, chance)
            except Exception as error:  # whatever it is, it is what is looked for
                course.fault(part, number, error)
            else:
                course.end(part, number, answer)
