"""All outcomes of a run, found by what they are; written as JSON, which the figures are drawn from."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.wan_parts.sites import MIDDLE
from bench.wan_parts.stage import Outcome


@dataclass(slots=True)
class Results:
    """What was measured; changed by add() and by whoever measures one of the numbers."""

    main_line: str
    outcomes: list[Outcome] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)  # what each line really gave
    pages: dict[str, int] = field(default_factory=dict)
    page_bytes: dict[str, int] = field(default_factory=dict)
    xz_bytes: dict[str, int] = field(default_factory=dict)
    handshake_ms: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> Outcome:
        self.outcomes.append(outcome)
        return outcome

    def rounds(self, way: str, task: str = "full", *, site: str = MIDDLE, line: str = "") -> list[Outcome]:
        """All rounds of one crawl."""
        wanted = (way, task, site, line or self.main_line)
        return [each for each in self.outcomes if (each.way, each.task, each.site, each.line) == wanted]

    def median(
        self,
        number: Callable[[Outcome], float],
        way: str,
        task: str = "full",
        *,
        site: str = MIDDLE,
        line: str = "",
    ) -> float | None:
        """The median of a number over all rounds of one crawl; None if there was none."""
        found = self.rounds(way, task, site=site, line=line)
        return statistics.median(map(number, found)) if found else None

    def ways(self, task: str = "full", *, site: str = MIDDLE, line: str = "") -> Iterator[str]:
        """The ways in which this was done, in the order in which they were tried."""
        wanted = (task, site, line or self.main_line)
        found = (each.way for each in self.outcomes if (each.task, each.site, each.line) == wanted)
        yield from dict.fromkeys(found)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def seconds(outcome: Outcome) -> float:
    return outcome.seconds


def size(outcome: Outcome) -> float:
    return outcome.bytes


def cpu(outcome: Outcome) -> float:
    return outcome.cpu_seconds
