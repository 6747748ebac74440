"""A crawler's rules at work: they judge pages and requests, and their state can be saved and restored."""

from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from sterna.crawler.clp import tokens
from sterna.crawler.facts import FALSE, Fact, decode, decode_value, encode, encode_value
from sterna.crawler.rules import TEMPLATES, check_rules, matches_alike
from sterna.errors import RulesError
from sterna.model import Ended, Record, State, StateChange, Target
from sterna.runtime.engine.clips import Clips
from sterna.runtime.engine.functions import Functions, Said
from sterna.runtime.engine.messages import MAX_NUMBER, PageView, Start, Verdict
from sterna.runtime.engine.state import OwnFacts, Scratch
from sterna.runtime.engine.values import CannotTravel, RuleFault, value_of

MAX_FAULTS_IN_A_ROW = 100
MAX_LINK_FACTS = 100_000  # of a page
DEFAULT_FACTS = 1_000_000
DEFAULT_SCRATCH_BYTES = 16 * 1024 * 1024

_SLOT_READERS = {"fact-slot-value", "fact-slot-names"}  # they may name a slot that only exists at run time


class Memory(Record, frozen=True):
    """What a crawler remembers besides its facts, as it is saved; values as `crawler.facts` encodes them."""

    next_number: int
    globals: dict[str, bytes]
    scratch: dict[str, bytes]


class RuleEngine:
    """A fresh CLIPS with the rules of one crawler; RulesError if they are invalid."""

    def __init__(self, start: Start, clips: Clips, *, tell_stopped: Callable[[], None]) -> None:
        self.ended = ""  # the limit that stopped the rules; set by stop(), also from another thread
        self.detail = ""
        self._tell_stopped = tell_stopped
        self._has_told = False
        most = start.budget.facts or DEFAULT_FACTS
        self._own = OwnFacts(
            most=most, is_too_many=lambda: self.stop(Ended.FACTS, f"more than {most:,} facts")
        )
        self._scratch = Scratch(start.budget.scratch_bytes or DEFAULT_SCRATCH_BYTES)
        self._clips = clips
        self._functions = Functions(clips, self._scratch)
        self._follows_links = not start.drives_loading
        # Changed while rules run, by their calls and their errors.
        self._faults = 0  # of the page that is judged
        self._faults_in_a_row = 0
        self._matches_alike = False  # some rule may match the same facts in two ways
        self._told: set[str] = set()  # keys of lines that are logged only once
        self._has_misfits = False
        self._globals: dict[str, bytes] = {}
        self._saved = b""  # the memory that home has
        self._is_memory_old = True  # something of it may have changed
        words = self._load(start)
        self._page_slots = _page_slots(words)
        self._asserts_links = "link" in words
        self.asks_before_fetch = "request" in words

    def _load(self, start: Start) -> set[str]:
        constructs = check_rules(start.rules)
        self._clips.watch(self._own)
        self._clips.define(self._functions.natives())
        given = [self._clips.template_named(name) for name in TEMPLATES]
        self._own.given_templates = frozenset(template.pointer for template in given if template)
        for construct in constructs:
            self._clips.load(construct)
        self._matches_alike = any(map(matches_alike, constructs))
        return {token.text for construct in constructs for token in tokens(construct.form)}

    def begin(self, state: State, facts: Iterable[bytes]) -> Verdict:
        """Starts with `facts`, or continues from a state; RulesError if either is not of these rules."""
        self._functions.said = Said(follows_links=self._follows_links)
        try:
            if state == State():
                self._clips.reset()
                for data in facts:
                    self._assert(decode(data))
                self._run()
            else:
                self._restore(state)
        except (ValueError, RuleFault) as error:
            raise RulesError(f"these rules do not fit the facts they were given: {error}") from error
        return self._end()

    def _restore(self, state: State) -> None:
        memory = _memory_of(state)
        for number, data in sorted(state.facts):
            if not self._own.next_number <= number < memory.next_number:
                raise ValueError(f"fact number {number} is out of range")
            self._own.next_number = number
            self._assert(decode(data))
        self._own.next_number = memory.next_number
        self._own.know_all()
        # The rules that these facts activate fired before the facts were saved.
        self._clips.calm()
        self._clips.troubles()
        for name, value in memory.globals.items():
            self._clips.set_global(name, decode_value(value))
        for name, value in memory.scratch.items():
            self._scratch.store(name, decode_value(value))
        self._saved = state.memory

    def _assert(self, fact: Fact) -> None:
        if fact.template in TEMPLATES:
            raise ValueError(f"a {fact.template} is given by the crawl")
        self._clips.assert_fact(fact)

    # -- judging -------------------------------------------------------------------------------------------

    def judge(self, view: PageView) -> Verdict:
        functions = self._functions
        functions.said, functions.view = Said(follows_links=self._follows_links), view
        self._own.begin_page()
        self._clips.assert_slots("page", [(slot, getattr(view, name)) for slot, name in self._page_slots])
        if self._asserts_links:
            for link in islice(view.links, MAX_LINK_FACTS):
                if self.ended:
                    break
                slots = (("url", link.url), ("text", link.text), ("rel", link.rel), ("page", view.url))
                self._clips.assert_slots("link", slots)
        self._run()
        verdict = self._end()
        functions.view = None
        return verdict

    def admits(self, request: Target) -> tuple[bool, tuple[str, ...]]:
        """True if no rule refuses the URL; and the lines that rules logged."""
        functions = self._functions
        functions.said, functions.is_asking = Said(), True
        self._own.begin_page()
        self._clips.assert_slots("request", [(slot, getattr(request, slot)) for slot in TEMPLATES["request"]])
        self._run()
        verdict = self._end()
        functions.is_asking = False
        return request.url not in functions.said.refused, verdict.log

    def stop(self, ended: str, detail: str) -> None:
        """Stops the rules softly; any thread may call it, and repeatedly."""
        if not self.ended:
            self.detail, self.ended = detail, ended
        self._clips.halt()

    def _run(self) -> None:
        """Lets rules fire until none is left; a failing rule does not stop the others."""
        self._hear(0)
        while not self.ended and not self._clips.is_idle():
            if self._matches_alike:
                self._clips.choose()
            self._hear(self._clips.run(1 if self._matches_alike else -1))
            if self._scratch.is_full:
                self.stop(Ended.SCRATCH_BYTES, "the scratch store is full")
        if self.ended:
            self._clips.calm()
            if not self._has_told:
                self._has_told = True
                self._tell_stopped()

    def _hear(self, fired: int) -> None:
        """Records the errors of the last run, in which `fired` rules fired."""
        troubles = self._clips.troubles()
        if troubles is None:
            self._faults_in_a_row = 0 if fired else self._faults_in_a_row
            return
        if self.ended:  # stopped on purpose; this only says in which rule
            self.detail += f" (in the rule {troubles.rule})" if troubles.rule else ""
            return
        self._has_misfits = self._has_misfits or troubles.is_misfit
        self._faults += 1
        self._faults_in_a_row = 1 if fired > 1 else self._faults_in_a_row + 1
        where = f"rule {troubles.rule}: " if troubles.rule else ""
        self._tell_once(where or troubles.text, f"{where}{troubles.text}")
        if self._faults_in_a_row >= MAX_FAULTS_IN_A_ROW:
            self.stop(Ended.RULES, f"{where}{troubles.text} ({MAX_FAULTS_IN_A_ROW} times in a row)")

    def _tell_once(self, key: str, line: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._functions.said.log(line)

    def _end(self) -> Verdict:
        """Retracts the crawl's facts, and encodes those of the author."""
        while given := self._own.given():
            for fact in given:
                self._clips.retract(fact)
            self._run()
        while self._drop_unfit():
            self._run()
        self._keep_globals()
        faults, self._faults, self._has_misfits = self._faults, 0, False
        return self._functions.said.verdict(error_count=faults, ended=self.ended, detail=self.detail)

    # -- the state -----------------------------------------------------------------------------------------

    def change(self) -> StateChange:
        added, removed = self._own.take_change()
        before = self._saved
        if self._is_memory_old or self._scratch.is_changed:
            self._is_memory_old = self._scratch.is_changed = False
            memory = Memory(self._own.next_number, self._globals, self._scratch.contents())
            self._saved = msgspec.msgpack.encode(memory)
        return StateChange(added, removed, self._saved if self._saved != before else None)

    def _drop_unfit(self) -> bool:
        """Encodes fresh facts; True if some were dropped because they cannot be saved."""
        unfit = []
        for number, address, template in self._own.take_fresh():
            self._is_memory_old = True
            try:
                fact = self._clips.read(address, self._clips.template(template))
                if self._has_misfits:
                    self._clips.check(fact)
                self._own.settle(number, encode(fact))
            except ValueError as error:
                name = self._clips.template(template).name
                self._tell_once(f"fact {name}", f"a fact {name} was dropped: {error}")
                unfit.append(address)
        for address in unfit:
            self._clips.retract(address)
        return bool(unfit)

    def _keep_globals(self) -> None:
        if not self._clips.has_new_globals():
            return
        self._is_memory_old = True
        lost = []
        for name, value in self._clips.globals():
            try:
                self._globals[name] = encode_value(value_of(value))
            except CannotTravel as error:
                self._tell_once(f"global {name}", f"the global ?*{name}* is FALSE now: it held {error}")
                self._globals[name] = encode_value(FALSE)
                lost.append(name)
        for name in lost:
            self._clips.set_global(name, FALSE)


def _memory_of(state: State) -> Memory:
    try:
        memory = msgspec.msgpack.decode(state.memory, type=Memory)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the saved memory is malformed: {error}") from error
    if not 0 < memory.next_number <= MAX_NUMBER:
        raise ValueError(f"the next fact number {memory.next_number} is out of range")
    return memory


def _page_slots(words: set[str]) -> list[tuple[str, str]]:
    """The slots of a page that rules use, with the names of their fields."""
    named = {word.rpartition(":")[2] for word in words}  # `?p:title` names a slot too
    sees_all = not named.isdisjoint(_SLOT_READERS)
    return [(slot, slot.replace("-", "_")) for slot in TEMPLATES["page"] if sees_all or slot in named]
