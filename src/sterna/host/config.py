"""What a host is told: its site, where the pages come from, its owner's policy and its limits."""

from pathlib import Path

import msgspec

MIB = 1024 * 1024


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


class HomeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner says of one home; what is left out is as for all."""

    key: str
    obey_robots: bool | None = None
    budget: Caps | None = None


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keeps a host small whatever is asked of it."""

    crawlers_at_once: int = 4
    queue: int = 16  # visits that wait for one of these
    visits_of_a_home: int = 8  # at work or in the queue, so that one home cannot fill it
    kept_bytes: int = 256 * MIB  # of parcels, for one visit; it waits when they are full
    kept_bytes_total: int = 1024 * MIB
    kept_seconds: float = 600.0  # without a sign of its home
    order_bytes: int = 32 * MIB
    body_seconds: float = 30.0  # for a request's body to come in
    level: int = 9  # of compression, at most: higher ones take twice the memory for each stream, and more
    idle_seconds: float = 60.0  # after the last visit its processes end
    readers: int = 2
    connections: int = 32  # to the site, of all visits


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the site's owner allows, as `policy.toml` says it."""

    homes: dict[str, str | HomeRules] = {}  # by name: a key, or a table that holds it
    budget: Caps = Caps()
    closed: tuple[str, ...] = ()  # paths that no crawler reads, nor anything below them
    obey_robots: bool = True
    connections: int = 4  # of one visit
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
    state: Path
    keys: Path
    limits: HostLimits = HostLimits()

    @property
    def address(self) -> str:
        """The endpoint, given or usual."""
        return self.endpoint.rstrip("/") or f"{self.site}/sterna"
