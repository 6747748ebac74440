"""What came of the inputs: counted by kind, and everything that is not as it should be."""

from collections import Counter
from dataclasses import dataclass, field

MAX_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Part:
    """So many inputs of one kind, from a number on."""

    kind: str
    seed: int
    first: int
    count: int


@dataclass
class Tally:
    """The inputs of one kind: how they were answered, and how long the slowest took."""

    answers: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest: int = -1  # its number
    faults: int = 0

    def add(self, number: int, answer: str, seconds: float) -> None:
        self.answers[answer] += 1
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = seconds, number

    def merge(self, other: "Tally") -> None:
        self.answers += other.answers
        self.faults += other.faults
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest = other.slowest_seconds, other.slowest


@dataclass
class Results:
    """Changed by those who throw inputs."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    checks: list[tuple[str, str, bool]] = field(default_factory=list)  # what, how it was, whether it is good
    faults: list[tuple[str, str]] = field(default_factory=list)  # which input or check, and what

    def tally(self, kind: str) -> Tally:
        return self.tallies.setdefault(kind, Tally())

    def fault(self, kind: str, number: int, what: str) -> None:
        """An input that was not answered as it should be."""
        self.tally(kind).faults += 1
        self.faults.append((f"{kind} #{number}", what))

    def merge(self, other: "Results") -> None:
        """Adds what another process found."""
        for kind, tally in other.tallies.items():
            self.tally(kind).merge(tally)
        self.checks += other.checks
        self.faults += other.faults

    def check(self, what: str, how: str, is_good: bool) -> None:
        """Something that must hold afterwards."""
        self.checks.append((what, how, is_good))
        if not is_good:
            self.faults.append((what, how))


def print_results(results: Results, *, seconds: float) -> None:
    """Tables as the README has them, and the faults."""
    total = sum(tally.answers.total() + tally.faults for tally in results.tallies.values())
    print(f"\n{total:,} inputs in {seconds:,.0f} s\n")
    print("| kind | inputs | slowest, s | faults | answers |\n|---|---|---|---|---|")
    for kind, tally in results.tallies.items():
        count = tally.answers.total() + tally.faults
        answers = ", ".join(f"{name} {number:,}" for name, number in tally.answers.most_common(6))
        slowest = f"{tally.slowest_seconds:.2f} (#{tally.slowest})"
        print(f"| {kind} | {count:,} | {slowest} | {tally.faults} | {answers} |")
    print("\n| afterwards | | |\n|---|---|---|")
    for what, how, is_good in results.checks:
        print(f"| {what} | {how} | {'good' if is_good else 'BAD'} |")
    for what, alike in _alike(results.faults)[:MAX_SHOWN]:
        print(
            f"FAULT {alike[0]}: {what}"
            + (f" (and {len(alike) - 1:,} more like it)" if len(alike) > 1 else "")
        )


def _alike(faults: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """What went wrong, each once, with the inputs that showed it."""
    found: dict[str, list[str]] = {}
    for where, what in faults:
        found.setdefault(what, []).append(where)
    return list(found.items())
