"""The owner's `policy.toml`: read and checked, with the line of what is wrong, and again when it changes."""

import math
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from sterna.errors import ConfigError, WireError
from sterna.host.config import HomeRules, LoadRules, Policy, SomeLoadRules
from sterna.host.policy.hours import Hours, zone_of
from sterna.host.policy.terms import check_name, rules_of
from sterna.wire.keys import PublicKey

MAX_CONNECTIONS = 64
MAX_PRIORITY = 10
LOOK_SECONDS = 1.0
MAX_FILE_BYTES = 4 * 1024 * 1024

Place = tuple[str | int, ...]  # of a value in the file: the names that lead to it
Fault = tuple[Place, str]
News = Literal["", "changed", "broken"]

_AT = re.compile(r" - at `([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_HEADER = re.compile(r"(\[\[?)\s*([^\]]+?)\s*\]")
_NAME = re.compile(r""""[^"]*"|'[^']*'|[A-Za-z0-9_-]+""")
_KEY = re.compile(rf"((?:{_NAME.pattern})(?:\s*\.\s*(?:{_NAME.pattern}))*)\s*=")


class PolicyFile:
    """The policy in force; a new file that is broken changes nothing."""

    def __init__(
        self, path: Path | None, policy: Policy, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._now = now
        # All of these are changed by look() alone.
        self.policy = policy
        self.fault = ""  # why the file as it is now is not used
        self._seen: tuple[int, ...] = ()
        self._looked_at = -math.inf

    def look(self) -> News:
        """Reads the file if it changed; tells once what came of that."""
        now = self._now()
        if self._path is None or abs(now - self._looked_at) < LOOK_SECONDS:
            return ""
        self._looked_at = now
        seen = _stamp(self._path)
        if seen == self._seen:
            return ""
        self._seen = seen
        try:
            policy = read_policy(self._path)
        except ConfigError as error:
            was, self.fault = self.fault, str(error)
            return "broken" if was != self.fault else ""
        was_broken, self.fault = bool(self.fault), ""
        if policy == self.policy and not was_broken:
            return ""
        self.policy = policy
        return "changed"


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_policy(path: Path) -> Policy:
    """The policy in a file; ConfigError says what is wrong, in which line and which field."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than any policy: {MAX_FILE_BYTES:,} bytes are the most")
        text = path.read_bytes().decode()
        written = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what is not UTF-8 is a ValueError too
        raise ConfigError(f"{path} is no TOML: {error}") from error
    try:
        policy = _policy_of(written)
        for place, words in _faults(policy):
            raise _Wrong(place, words)
    except _Wrong as wrong:
        raise ConfigError(_line(path, text, wrong)) from wrong
    return policy


class _Wrong(Exception):
    def __init__(self, place: Place, words: str) -> None:
        super().__init__(words)
        self.place = place
        self.words = words


def _line(path: Path, text: str, wrong: _Wrong) -> str:
    number = line_of(text, wrong.place)
    field = ".".join(map(str, wrong.place))
    where = ", ".join(filter(None, (str(path), f"line {number}" if number else "", field)))
    return f"{where}: {' '.join(wrong.words.split())}"


def line_of(text: str, place: Place) -> int:
    """The line in which a value stands, or the table or list that holds it; 0 if there is none."""
    table: Place = ()
    counts: Counter[Place] = Counter()
    best = (0, 0)
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line.strip()):
            table = _names(header[2])
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            here = table
        elif key := _KEY.match(line.strip()):
            here = (*table, *_names(key[1]))
        else:
            continue
        if here == place[: len(here)] and len(here) > best[0]:
            best = (len(here), number)
    return best[1]


def _names(dotted: str) -> Place:
    return tuple(name.strip("\"'") for name in _NAME.findall(dotted))


# -- what is written ---------------------------------------------------------------------------------------


def _policy_of(written: dict[str, Any]) -> Policy:
    homes = written.get("homes", {})
    if isinstance(homes, dict):  # one by one, so that the name of the wrong one can be told
        for name, home in homes.items():
            _convert(home, str | HomeRules, ("homes", name))  # type: ignore[arg-type]
    policy: Policy = _convert(written, Policy, ())
    return policy


def _convert(value: object, kind: type[Any], place: Place) -> Any:
    try:
        return msgspec.convert(value, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        words = str(error)
        if at := _AT.search(words):
            words = words[: at.start()]
            steps = _STEP.findall(at[1])
            place = (*place, *(name or int(index) for name, index in steps))
        if unknown := _UNKNOWN.search(words):
            place = (*place, unknown[1])
            words = "unknown field"
        raise _Wrong(place, words) from error


# -- what cannot be ----------------------------------------------------------------------------------------


def _faults(policy: Policy) -> Iterator[Fault]:
    """What the types do not say."""
    yield from _zone_fault(policy)
    yield from _hours_faults(policy.hours, ("hours",))
    yield from _closed_faults(policy.closed, ("closed",))
    yield from _load_faults(policy.load, ("load",))
    yield from _range_faults(policy)
    for table in ("budget", "day", "limits"):
        yield from _negative_faults(getattr(policy, table), (table,))
    for number, priority in enumerate(policy.priority):
        if not 1 <= priority.least <= MAX_PRIORITY:
            yield ("priority", number, "least"), f"{priority.least} cannot be: 1 to {MAX_PRIORITY}"
        yield from _negative_faults(priority.budget, ("priority", number, "budget"))
    keys: dict[str, str] = {}
    for name, home in policy.homes.items():
        yield from _home_faults(name, rules_of(home))
        key = rules_of(home).key
        if key and keys.setdefault(key, name) != name:
            yield ("homes", name), f"the key is that of {keys[key]} too: one key is one home"


def _zone_fault(policy: Policy) -> Iterator[Fault]:
    try:
        zone_of(policy.zone)
    except ValueError as error:
        yield ("zone",), str(error)


def _range_faults(policy: Policy) -> Iterator[Fault]:
    limits = policy.limits
    if not 1 <= policy.connections <= MAX_CONNECTIONS:
        yield ("connections",), f"{policy.connections} cannot be: 1 to {MAX_CONNECTIONS}"
    if not 0 <= policy.delay_seconds <= 3600:
        yield ("delay_seconds",), f"{policy.delay_seconds} cannot be: 0 to 3600"
    for name in ("crawlers_at_once", "connections", "readers"):
        if getattr(limits, name) < 1:
            yield ("limits", name), "there must be 1 at least"


def _home_faults(name: str, home: HomeRules) -> Iterator[Fault]:
    place: Place = ("homes", name)
    try:
        check_name(name)
    except ValueError as error:
        yield place, str(error)
    try:
        if home.key:
            PublicKey.parse(home.key)
    except WireError as error:
        yield (*place, "key"), f"the key of {name} cannot be: {error.detail}"
    yield from _hours_faults(home.hours or (), (*place, "hours"))
    yield from _closed_faults(home.closed, (*place, "closed"))
    yield from _load_faults(home.load, (*place, "load"))
    yield from _negative_faults(home.budget, (*place, "budget"))
    yield from _negative_faults(home.day, (*place, "day"))


def _hours_faults(texts: tuple[str, ...], place: Place) -> Iterator[Fault]:
    try:
        Hours.parse(texts, zone_of(""))
    except ValueError as error:
        yield place, str(error)


def _closed_faults(paths: tuple[str, ...], place: Place) -> Iterator[Fault]:
    for path in paths:
        if not path.startswith("/"):
            yield place, f"closed path {path!r} cannot be: it begins with /"


def _load_faults(load: LoadRules | SomeLoadRules, place: Place) -> Iterator[Fault]:
    if isinstance(load.machine, int | float) and not 0 <= load.machine <= 1:
        yield (*place, "machine"), f"{load.machine} cannot be: a share of the cores, 0 to 1"
    if isinstance(load.latency_ms, int | float) and not 0 <= load.latency_ms <= 60_000:
        yield (*place, "latency_ms"), f"{load.latency_ms} cannot be: 0 to 60000"
    if isinstance(load, LoadRules) and not re.fullmatch(r"/[!-~]*", load.probe):
        yield (*place, "probe"), f"{load.probe!r} cannot be: a path of the site, such as /"


def _negative_faults(table: msgspec.Struct, place: Place) -> Iterator[Fault]:
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if isinstance(value, int | float) and not 0 <= value < math.inf:  # False for NaN, too
            yield (*place, name), f"{value} cannot be: nothing is below 0; 0 stands for no limit"
