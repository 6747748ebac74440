"""What a host is told: its site, where the pages come from, its owner's policy and its limits."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

MIB = 1024 * 1024

Opening = Literal["allowed", "everybody"]
OutsideHours = Literal["refuse", "keep"]


class Caps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that one visit is granted; 0 stands for no limit, as in a budget."""

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
    """Some of the caps, for a home or a priority; what is left out is as for all."""

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
    """The most that all visits of one home are granted in a day of the zone; 0 is no limit."""

    visits: int = 0
    pages: int = 0
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    sent_bytes: int = 0  # before compression

    @property
    def are_any(self) -> bool:
        return any(msgspec.structs.astuple(self))


class SomeDayCaps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some of a day's caps, for a home; what is left out is as for all."""

    visits: int | UnsetType = UNSET
    pages: int | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET
    read_bytes: int | UnsetType = UNSET
    sent_bytes: int | UnsetType = UNSET


class LoadRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How busy the machine and its web server may be while crawlers work; 0: not looked at."""

    machine: float = 0.75  # of all cores, used by others than the host; what is niced does not count
    latency_ms: float = 0.0  # of the web server's answer to a probe, beyond what it takes when all is calm
    probe: str = "/"  # the path that is asked for


class SomeLoadRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some of the rules of load, for a home; what is left out is as for all."""

    machine: float | UnsetType = UNSET
    latency_ms: float | UnsetType = UNSET


class PriorityRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps for homes that promise to visit the site again so soon."""

    least: int  # of the priority that is offered, 1 to 10
    budget: SomeCaps


class HomeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner says of one home; what is left out is as for all."""

    key: str = ""  # "": the one that was allowed under this name
    obey_robots: bool | None = None
    budget: SomeCaps = SomeCaps()
    day: SomeDayCaps = SomeDayCaps()
    load: SomeLoadRules = SomeLoadRules()
    hours: tuple[str, ...] | None = None
    outside_hours: OutsideHours | None = None
    closed: tuple[str, ...] = ()  # besides those that are closed to all
    never: bool = False


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keeps a host small whatever is asked of it."""

    crawlers_at_once: int = 4
    queue: int = 16  # visits that wait for one of these
    visits_of_a_home: int = 8  # at work or in the queue, so that one home cannot fill it
    deferred: int = 16  # visits that wait for their hours
    deferred_bytes: int = 64 * MIB  # that they take meanwhile, about
    kept_bytes: int = 256 * MIB  # of parcels, for one visit; it waits when they are full
    kept_bytes_total: int = 1024 * MIB
    kept_seconds: float = 600.0  # without a sign of its home
    deferred_seconds: float = 24 * 3600.0  # the same for one that waited for its hours; and of all pauses
    order_bytes: int = 32 * MIB
    body_seconds: float = 30.0  # for a request's body to come in
    level: int = 9  # of compression, at most: higher ones take twice the memory for each stream, and more
    engine_bytes: int = 1024 * MIB  # of the memory of all that may work at once, each has its part
    compressor_bytes: int = 224 * MIB  # of all streams together, about; the more there are, the less has each
    idle_seconds: float = 60.0  # after the last visit its processes end
    readers: int = 2
    connections: int = 32  # to the site, of all visits


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the site's owner allows, as `policy.toml` says it."""

    zone: str = ""  # of all hours and days, such as Europe/Vienna; "": the machine's own
    open: Opening = "allowed"  # to homes that are named; or to everybody
    homes: dict[str, str | HomeRules] = {}  # by name: a key, or a table
    hours: tuple[str, ...] = ()  # of all who have none of their own; none: always
    outside_hours: OutsideHours = "refuse"
    budget: Caps = Caps()
    day: DayCaps = DayCaps()
    load: LoadRules = LoadRules()
    priority: tuple[PriorityRules, ...] = ()
    closed: tuple[str, ...] = ()  # paths that no crawler reads, nor anything below them
    obey_robots: bool = True
    connections: int = 1  # of one visit: with more of them the site's visitors begin to feel it
    delay_seconds: float = 0.0  # between two requests of one visit
    limits: HostLimits = HostLimits()


class Alias(msgspec.Struct, frozen=True):
    """A folder outside the document root that the web server serves under a path of its own."""

    path: str  # of the URL, such as /files
    folder: Path


class HostConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One host: for one site, from one source."""

    site: str  # an origin, such as https://www.example.org
    endpoint: str = ""  # where the host is asked, absolute; "": {site}/sterna
    root: Path | None = None  # the document root; None: all pages come over HTTP
    aliases: tuple[Alias, ...] = ()
    upstream: str = ""  # the web server as reached from here, such as http://127.0.0.1:8080
    check: str = ""  # how a document root is held against the web server, as `host.source` reads it
    ca_file: str = ""  # certificates to trust at the upstream, instead of the usual ones
    policy: Policy = Policy()
    policy_file: Path | None = None  # where the policy was read, and is looked for when it changes
    state: Path
    keys: Path
    limits: HostLimits = HostLimits()
    gives_way: bool = False  # to everybody else: its processes run only when a core is idle

    @property
    def address(self) -> str:
        """The endpoint, given or usual."""
        return self.endpoint.rstrip("/") or f"{self.site}/sterna"
