"""The owner's policy: its records, and `policy.toml`, which is checked, and read again when it changes."""

import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from sterna import toml
from sterna.errors import ConfigError, WireError
from sterna.host.keyring import check_name
from sterna.host.policy.hours import Hours, zone_of
from sterna.toml import KeyPath, Wrong, stamp
from sterna.wire.keys import PublicKey

MIB = 1024 * 1024
MAX_CONNECTIONS = 64
MAX_PRIORITY = 10
LOOK_SECONDS = 1.0

_PRODUCT = re.compile(r"[A-Za-z_-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{32}")

Opening = Literal["allowed", "everybody"]
OutsideHours = Literal["refuse", "keep"]
Fault = tuple[KeyPath, str]
News = Literal["", "changed", "broken"]


class Caps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that one visit is granted; 0 means no limit, as in a budget."""

    pages: int = 100_000
    seconds: float = 3_600.0
    urls: int = 500_000
    depth: int = 64
    requests: int = 0
    fetched_bytes: int = 0
    sent_bytes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 1_800.0
    memory_bytes: int = 256 * MIB
    scratch_bytes: int = 16 * MIB
    facts: int = 1_000_000


class SomeCaps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps for a home or a priority; those left out are the same as for all."""

    pages: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    urls: int | UnsetType = UNSET
    depth: int | UnsetType = UNSET
    requests: int | UnsetType = UNSET
    fetched_bytes: int | UnsetType = UNSET
    sent_bytes: int | UnsetType = UNSET
    wall_seconds: float | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    scratch_bytes: int | UnsetType = UNSET
    facts: int | UnsetType = UNSET


class DayCaps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that all visits of one home are granted in a day of the zone; 0 means no limit."""

    visits: int = 0
    pages: int = 0
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    sent_bytes: int = 0  # before compression

    @property
    def are_any(self) -> bool:
        return any(msgspec.structs.astuple(self))


class SomeDayCaps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps of a day for a home; those left out are the same as for all."""

    visits: int | UnsetType = UNSET
    pages: int | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET
    read_bytes: int | UnsetType = UNSET
    sent_bytes: int | UnsetType = UNSET


class LoadRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How busy the machine and its web server may be while crawlers work; 0 means not measured."""

    machine: float = 0.75  # share of all cores used by others than the host, without niced processes
    latency_ms: float = 0.0  # added latency of the web server's answer to a probe, compared with a calm time
    probe: str = "/"  # the path to ask for


class SomeLoadRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Load rules for a home; those left out are the same as for all."""

    machine: float | UnsetType = UNSET
    latency_ms: float | UnsetType = UNSET


class PriorityRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps for homes that promise the site at least this priority in their next visits."""

    least: int  # 1 to 10
    budget: SomeCaps


class HomeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules for one home; those left out are the same as for all."""

    key: str = ""  # "": the key that was allowed under this name
    obey_robots: bool | None = None
    robots_name: str = ""
    budget: SomeCaps = SomeCaps()
    day: SomeDayCaps = SomeDayCaps()
    load: SomeLoadRules = SomeLoadRules()
    hours: tuple[str, ...] | None = None
    outside_hours: OutsideHours | None = None
    closed: tuple[str, ...] = ()  # in addition to those closed to all
    crawlers: tuple[str, ...] | None = None
    may_query: bool | None = None
    never: bool = False


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that keep a host small whatever is asked of it."""

    crawlers_at_once: int = 4
    queue: int = 16  # visits that wait for one of these slots
    visits_of_a_home: int = 8  # at work or in the queue, so that one home cannot fill it
    deferred: int = 16  # visits that wait for their hours
    deferred_bytes: int = 64 * MIB  # of memory that these take, approximately
    kept_bytes: int = 256 * MIB  # of parcels for one visit, which waits when they are reached
    kept_bytes_total: int = 1024 * MIB
    kept_seconds: float = 600.0  # that a visit is kept without hearing from its home
    deferred_seconds: float = 24 * 3600.0  # the same for a deferred visit; also the most for all its pauses
    order_bytes: int = 32 * MIB
    body_seconds: float = 30.0  # to receive a request's body
    level: int = 9  # highest compression level: higher ones take at least twice the memory per stream
    engine_bytes: int = 1024 * MIB  # of memory for all engines, divided by crawlers_at_once
    compressor_bytes: int = 224 * MIB  # of memory for all streams, approximately; more streams get less each
    query_bytes: int = 16 * MIB  # of facts and parcels in the reply to a query of a crawler that is here
    idle_seconds: float = 60.0  # after the last visit, until its processes end
    readers: int = 2
    connections: int = 32  # to the site, of all visits


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the site's owner allows, as written in `policy.toml`."""

    zone: str = ""  # of all hours and days, such as Europe/Vienna; "": the machine's own
    open: Opening = "allowed"  # to homes that are named, or to everybody
    homes: dict[str, str | HomeRules] = {}  # by name: a key, or a table
    hours: tuple[str, ...] = ()  # for homes without hours of their own; none: always
    outside_hours: OutsideHours = "refuse"
    budget: Caps = Caps()
    day: DayCaps = DayCaps()
    load: LoadRules = LoadRules()
    priority: tuple[PriorityRules, ...] = ()
    closed: tuple[str, ...] = ()  # paths that no crawler may read, nor anything below them
    crawlers: tuple[str, ...] = ()  # permitted ones: keys of authors, digests of programs; none: all
    may_query: bool = True  # a home may ask what its own crawler holds
    obey_robots: bool = True
    robots_name: str = "Sterna"  # of crawlers here, in robots.txt and User-Agent, whatever their homes say
    connections: int = 1  # of one visit: with more of them the site's visitors begin to notice
    delay_seconds: float = 0.0  # between two requests of one visit
    limits: HostLimits = HostLimits()


def rules_of(home: str | HomeRules) -> HomeRules:
    """The rules of a home, also where only its key is written."""
    return HomeRules(key=home) if isinstance(home, str) else home


class PolicyFile:
    """The policy in force; an invalid new file changes nothing."""

    def __init__(
        self, path: Path | None, policy: Policy, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._now = now
        # All of these are changed by look() alone.
        self.policy = policy
        self.fault = ""  # why the current file is not used
        self._seen: tuple[int, ...] = ()
        self._looked_at = -math.inf

    def look(self) -> News:
        """Reads the file if it changed; reports each change once."""
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
    """The policy in a file; ConfigError names the line, the field and what is wrong."""
    text, written = toml.read(path)
    try:
        homes = written.get("homes", {})
        if isinstance(homes, dict):  # one by one, so that the error can name the wrong one
            for name, home in homes.items():
                toml.convert(home, str | HomeRules, ("homes", name))  # type: ignore[arg-type]
        policy: Policy = toml.convert(written, Policy, ())
        for place, words in _faults(policy):
            raise Wrong(place, words)
    except Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong
    return policy


# -- checks beyond the types -------------------------------------------------------------------------------


def _faults(policy: Policy) -> Iterator[Fault]:
    try:
        zone_of(policy.zone)
    except ValueError as error:
        yield ("zone",), str(error)
    yield from _rule_faults(policy, ())
    if not re.fullmatch(r"/[!-~]*", policy.load.probe):
        yield ("load", "probe"), f"{policy.load.probe!r} is not a path of the site, such as /"
    if not 1 <= policy.connections <= MAX_CONNECTIONS:
        yield ("connections",), f"{policy.connections} is out of range (1 to {MAX_CONNECTIONS})"
    if not 0 <= policy.delay_seconds <= 3600:
        yield ("delay_seconds",), f"{policy.delay_seconds} is out of range (0 to 3600)"
    for name in ("crawlers_at_once", "connections", "readers"):
        if getattr(policy.limits, name) < 1:
            yield ("limits", name), f"{getattr(policy.limits, name)} is too small (at least 1)"
    yield from _number_faults(policy.limits, ("limits",))
    for number, priority in enumerate(policy.priority):
        if not 1 <= priority.least <= MAX_PRIORITY:
            yield ("priority", number, "least"), f"{priority.least} is out of range (1 to {MAX_PRIORITY})"
        yield from _number_faults(priority.budget, ("priority", number, "budget"))
    yield from _home_faults(policy)


def _home_faults(policy: Policy) -> Iterator[Fault]:
    keys: dict[str, str] = {}
    for name, home in policy.homes.items():
        rules, place = rules_of(home), ("homes", name)
        try:
            check_name(name)
        except ValueError as error:
            yield place, str(error)
        if rules.key and (why := _why_no_key(rules.key)):
            yield (*place, "key"), f"the key of {name} is invalid: {why}"
        yield from _rule_faults(rules, place)
        if rules.key and keys.setdefault(rules.key, name) != name:
            yield place, f"has the same key as {keys[rules.key]}: each home needs a key of its own"


def _rule_faults(rules: Policy | HomeRules, place: KeyPath) -> Iterator[Fault]:
    """In the rules that exist for all homes and for one."""
    try:
        Hours.parse(rules.hours or (), zone_of(""))
    except ValueError as error:
        yield (*place, "hours"), str(error)
    if rules.robots_name and not _PRODUCT.fullmatch(rules.robots_name):
        yield (*place, "robots_name"), f"{rules.robots_name!r} is not a name of letters, _ and - (RFC 9309)"
    for path in rules.closed:
        if not path.startswith("/"):
            yield (*place, "closed"), f"closed path {path!r} does not begin with /"
    for each in rules.crawlers or ():
        if not _DIGEST.fullmatch(each) and (why := _why_no_key(each)):
            yield (*place, "crawlers"), f"{each[:80]!r} is neither the digest of a program nor a key: {why}"
    machine, latency_ms = rules.load.machine, rules.load.latency_ms
    if isinstance(machine, int | float) and not 0 <= machine <= 1:
        yield (*place, "load", "machine"), f"{machine} is out of range (a share of the cores, 0 to 1)"
    if isinstance(latency_ms, int | float) and not 0 <= latency_ms <= 60_000:
        yield (*place, "load", "latency_ms"), f"{latency_ms} is out of range (0 to 60000)"
    yield from _number_faults(rules.budget, (*place, "budget"))
    yield from _number_faults(rules.day, (*place, "day"))


def _why_no_key(text: str) -> str:
    try:
        PublicKey.parse(text)
    except WireError as error:
        return error.detail
    return ""


def _number_faults(table: msgspec.Struct, place: KeyPath) -> Iterator[Fault]:
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if isinstance(value, int | float) and not 0 <= value < math.inf:  # False for NaN, too
            yield (*place, name), f"{value} is not a limit: 0 (no limit) or more"
