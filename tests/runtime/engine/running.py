"""Engines in the test's own process, and what they are asked."""

from collections.abc import Iterable

import msgspec

from sterna.crawler.facts import Fact, decode
from sterna.model import Budget, Source, State, StateChange
from sterna.runtime.engine.clips import Clips
from sterna.runtime.engine.engine import RuleEngine
from sterna.runtime.engine.messages import PageView, Start, Verdict

_NEW = State()


def die_of_memory() -> None:
    raise AssertionError("out of memory")


def fresh_clips() -> Clips:
    return Clips(out_of_memory=die_of_memory)


def start_of(
    rules: str,
    *,
    state: State = _NEW,
    facts: Iterable[bytes] = (),
    most_facts: int = 0,
    scratch_bytes: int = 0,
    drives_loading: bool = False,
) -> Start:
    return Start(
        rules=(Source("rules.clp", rules),),
        state=state,
        facts=tuple(facts),
        budget=Budget(facts=most_facts, scratch_bytes=scratch_bytes),
        page_seconds=5.0,
        drives_loading=drives_loading,
    )


class Running:
    """An engine that has begun, with the state that home would have of it."""

    def __init__(self, start: Start) -> None:
        self.engine = RuleEngine(start, fresh_clips(), tell_stopped=lambda: None)
        self._start = start
        self._state = start.state
        self.first = self.engine.begin(start.state, start.facts)

    def judge(self, url: str = "https://a.example/", **fields: object) -> Verdict:
        return self.engine.judge(PageView(url=url, **fields))  # type: ignore[arg-type]

    def state(self) -> State:
        """What is saved, brought up to date."""
        self._state = merged(self._state, self.engine.change())
        return self._state

    def facts(self) -> list[Fact]:
        return [decode(data) for _, data in self.state().facts]

    def moved(self) -> "Running":
        """The same crawler, saved and gone on elsewhere."""
        return Running(msgspec.structs.replace(self._start, state=self.state()))


def merged(state: State, change: StateChange) -> State:
    """As home does it: what is removed goes first."""
    facts = dict(state.facts)
    for number in change.removed:
        del facts[number]
    facts.update(change.added)
    return State(tuple(sorted(facts.items())), state.memory if change.memory is None else change.memory)


def running(rules: str, **options: object) -> Running:
    return Running(start_of(rules, **options))  # type: ignore[arg-type]
