"""What a crawler remembers: facts of its own, numbered and counted, and the scratch store.

A fact keeps its number for good: it survives modify, a save and a restore. CLIPS gets it as the fact's index
and as its recency, so that every order that CLIPS derives from those is the same before and after a move.
"""

from collections.abc import Callable, Container

from sterna.crawler.facts import Value, Values, encode_value
from sterna.runtime.engine.library import number_of, set_number, template_of
from sterna.runtime.engine.messages import MAX_NUMBER
from sterna.runtime.engine.values import RuleFault

# Pages and links come between two own facts: newer than those before, older than those they lead to.
_RECENCY_BITS = 20


class OwnFacts:
    """Gets notice of all facts; those of `given_templates` are the crawl's, all others the author's own."""

    def __init__(self, *, most: int, is_too_many: Callable[[], None]) -> None:
        self._most = most
        self._is_too_many = is_too_many
        self.given_templates: Container[int] = ()  # set once those templates are there
        # All below is changed by the hooks of CLIPS, and by the engine between two runs.
        self.next_number = 1  # of the next own fact; set when facts of an earlier visit come back
        self._own: dict[int, int] = {}  # addresses by numbers
        self._given: dict[int, None] = {}  # addresses
        self._fresh: dict[int, None] = {}  # numbers of new or modified facts that are not settled yet
        self._gone: set[int] = set()  # numbers of retracted facts that home knows
        self._known: set[int] = set()  # numbers of facts that home knows
        self._settled: dict[int, bytes] = {}  # those that home does not know yet
        self._modified = 0  # the number of the fact that is being modified
        self._places = 0  # of facts of the crawl since the last page began

    # -- hooks: facts by their addresses -------------------------------------------------------------------

    def asserted(self, fact: int) -> None:
        """Gives the fact its number; it is not matched with any rule yet."""
        if template_of(fact) in self.given_templates:
            self._places += 1
            self._given[fact] = None
            before = (self.next_number - 1) << _RECENCY_BITS
            set_number(fact, MAX_NUMBER + self._places, before + self._places)
            return
        number = self._modified or self.next_number
        if number == self.next_number:
            self.next_number += 1
        set_number(fact, number, number << _RECENCY_BITS)
        self._own[number] = fact
        self._fresh[number] = None
        if len(self._own) > self._most:
            self._is_too_many()

    def retracted(self, fact: int) -> None:
        if fact in self._given:
            del self._given[fact]
            return
        number = number_of(fact)
        del self._own[number]
        self._fresh.pop(number, None)
        self._settled.pop(number, None)
        if number in self._known:
            self._known.discard(number)
            self._gone.add(number)

    def modifying(self, fact: int) -> None:
        """It is retracted and asserted again next, and keeps its number if it is an own one; 0 at the end."""
        self._modified = number_of(fact) if fact and fact not in self._given else 0

    # -- between two runs ----------------------------------------------------------------------------------

    def begin_page(self) -> None:
        """Facts of the crawl belong to another page from now on."""
        self._places = 0

    def given(self) -> list[int]:
        """The addresses of the crawl's present facts, the newest first."""
        return list(reversed(self._given))

    def take_fresh(self) -> list[tuple[int, int, int]]:
        """Number, address and template of each fact that is new or modified since the last call."""
        fresh = sorted(self._fresh)
        self._fresh.clear()
        return [(number, self._own[number], template_of(self._own[number])) for number in fresh]

    def settle(self, number: int, data: bytes) -> None:
        self._settled[number] = data

    def know_all(self) -> None:
        self._known.update(self._own)
        self._fresh.clear()

    def take_change(self) -> tuple[tuple[tuple[int, bytes], ...], tuple[int, ...]]:
        """What home does not know: new facts, and the numbers of those retracted or replaced."""
        added, removed = tuple(sorted(self._settled.items())), tuple(sorted(self._gone))
        self._known.update(self._settled)
        self._settled.clear()
        self._gone.clear()
        return added, removed


class Scratch:
    """Values that rules store under names, up to a number of bytes; changed by the functions of rules."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: dict[str, tuple[Value | Values, int]] = {}  # with their sizes
        self._size = 0
        self.is_full = False  # a rule tried to store more
        self.is_changed = False  # set back by the engine when it has saved the contents

    def store(self, name: str, value: Value | Values) -> None:
        """Stores a value in place of the previous one; RuleFault if there is no room."""
        size = len(name.encode()) + len(encode_value(value))
        before = self._values[name][1] if name in self._values else 0
        if self._size - before + size > self._most_bytes:
            self.is_full = True
            raise RuleFault(f"the scratch store is limited to {self._most_bytes:,} bytes")
        self._size += size - before
        self._values[name] = value, size
        self.is_changed = True

    def recall(self, name: str, default: Value | Values) -> Value | Values:
        return self._values[name][0] if name in self._values else default

    def contents(self) -> dict[str, bytes]:
        return {name: encode_value(value) for name, (value, _) in self._values.items()}
