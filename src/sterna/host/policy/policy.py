"""The owner's `policy.toml`: read and checked, with the line of what is wrong, and again when it changes."""

import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from sterna import toml
from sterna.errors import ConfigError, WireError
from sterna.host.config import HomeRules, LoadRules, Policy, SomeLoadRules
from sterna.host.policy.hours import Hours, zone_of
from sterna.host.policy.terms import check_name, rules_of
from sterna.toml import Place, Wrong, stamp
from sterna.wire.keys import PublicKey

MAX_CONNECTIONS = 64
MAX_PRIORITY = 10
LOOK_SECONDS = 1.0

Fault = tuple[Place, str]
News = Literal["", "changed", "broken"]


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
        seen = stamp(self._path)
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


def read_policy(path: Path) -> Policy:
    """The policy in a file; ConfigError says what is wrong, in which line and which field."""
    text, written = toml.read(path)
    try:
        policy = _policy_of(written)
        for place, words in _faults(policy):
            raise Wrong(place, words)
    except Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong
    return policy


# -- what is written ---------------------------------------------------------------------------------------


def _policy_of(written: dict[str, Any]) -> Policy:
    homes = written.get("homes", {})
    if isinstance(homes, dict):  # one by one, so that the name of the wrong one can be told
        for name, home in homes.items():
            toml.convert(home, str | HomeRules, ("homes", name))  # type: ignore[arg-type]
    policy: Policy = toml.convert(written, Policy, ())
    return policy


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
