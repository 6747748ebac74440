"""What visits spared the site: sums of receipts, and the web server's log before and after them. No I/O."""

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, tzinfo
from functools import lru_cache

from sterna.host.owner.access_log import Hit
from sterna.host.owner.receipts import KeptReceipt
from sterna.model import Record
from sterna.wire.keys import PublicKey

SOME_DAYS = 14  # bars to each side of the first visit
EVERYBODY = ""  # instead of an agent
OWN_AGENT = "sterna"  # of the host itself: its survey of the site, its probes of the load
_QUARTER = 900  # seconds: no zone's midnight lies elsewhere

DayOf = Callable[[float], date]


def days_of(zone: tzinfo | None) -> DayOf:
    """The day of a time in a zone, or in this machine's own."""

    @lru_cache(maxsize=4096)
    def day(quarter: int) -> date:
        return datetime.fromtimestamp(quarter * _QUARTER, zone).date()

    return lambda time: day(int(time // _QUARTER))


# -- receipts ----------------------------------------------------------------------------------------------


class Total(Record, frozen=True, array_like=False):
    """The sum over receipts."""

    visits: int = 0
    countersigned: int = 0  # of these, by their homes too
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    spared_requests: int = 0
    spared_bytes: int = 0

    def plus(self, kept: KeptReceipt) -> "Total":
        """With one more."""
        receipt = kept.receipt
        return Total(
            self.visits + 1,
            self.countersigned + kept.is_countersigned,
            self.pages + receipt.pages,
            self.requests + receipt.requests,
            self.read_bytes + receipt.read_bytes,
            self.sent_bytes + receipt.sent_bytes,
            self.cpu_seconds + receipt.cpu_seconds,
            self.spared_requests + receipt.spared_requests,
            self.spared_bytes + receipt.spared_bytes,
        )


class HomeTotal(Record, frozen=True, array_like=False):
    """What the visits of one home came to, on one day or altogether."""

    home: str  # what the owner calls it
    key: str
    total: Total
    day: date | None = None


def total_of(rows: Iterable[KeptReceipt]) -> Total:
    """All of them together."""
    total = Total()
    for kept in rows:
        total = total.plus(kept)
    return total


def by_home(rows: Sequence[KeptReceipt]) -> list[HomeTotal]:
    """The sum for each home, by name."""
    homes = _by_home(rows)
    return [HomeTotal(_name(own), key, total_of(own)) for key, own in homes.items()]


def by_home_and_day(rows: Sequence[KeptReceipt], day_of: DayOf) -> list[HomeTotal]:
    """The sum for each home and each day on which visits of it began, by name and day."""
    sums: list[HomeTotal] = []
    for key, own in _by_home(rows).items():
        days: dict[date, Total] = {}
        for kept in own:
            day = day_of(kept.receipt.began)
            days[day] = days.get(day, Total()).plus(kept)
        sums += [HomeTotal(_name(own), key, days[day], day) for day in sorted(days)]
    return sums


def _by_home(rows: Sequence[KeptReceipt]) -> dict[str, list[KeptReceipt]]:
    """The receipts of each home under its key, homes in the order of their names."""
    homes: dict[bytes, list[KeptReceipt]] = {}
    for kept in rows:
        homes.setdefault(kept.receipt.home, []).append(kept)
    named = sorted(homes.items(), key=lambda item: (_name(item[1]), item[0]))
    return {PublicKey(key).text: own for key, own in named}


def _name(own: Sequence[KeptReceipt]) -> str:
    """What the owner called the home last; its id if he never did."""
    latest = max(own, key=lambda kept: kept.receipt.began)
    return latest.name or PublicKey(latest.receipt.home).id


# -- the log -----------------------------------------------------------------------------------------------


class Traffic:
    """The requests of a log by day and agent; those of the crawlers at the site itself are not traffic."""

    def __init__(self, agents: Iterable[str], day_of: DayOf, *, here: Iterable[str] = ()) -> None:
        self._agents = {product(agent) for agent in agents}
        self._day_of = day_of
        self._here = frozenset(here)  # addresses from which the host asks the web server, besides loopback
        # Grow by add() alone; by agent, requests and bytes.
        self.days: dict[date, dict[str, list[int]]] = {}
        self.local_requests = 0
        self.has_agents = False  # the log says who asks
        self.has_outsiders = False  # somebody asks from another machine

    def add(self, hit: Hit) -> None:
        """Counts a request."""
        day = self.days.setdefault(self._day_of(hit.time), {})
        self.has_agents |= hit.agent is not None
        agent = product(hit.agent or "")
        is_known = agent in self._agents
        is_local = hit.client in self._here or is_loopback(hit.client)
        self.has_outsiders |= not is_local
        if is_local and (is_known or agent == OWN_AGENT):
            self.local_requests += 1
            return
        for name in (EVERYBODY, agent) if is_known else (EVERYBODY,):
            counts = day.setdefault(name, [0, 0])
            counts[0] += 1
            counts[1] += hit.size_bytes


class Side(Record, frozen=True, array_like=False):
    """The days before or after a first visit that the log covers."""

    days: int = 0
    requests: int = 0
    size_bytes: int = 0

    @property
    def daily_requests(self) -> float:
        """On average."""
        return self.requests / self.days if self.days else 0.0

    @property
    def daily_bytes(self) -> float:
        """On average."""
        return self.size_bytes / self.days if self.days else 0.0


class Bar(Record, frozen=True, array_like=False):
    """One day of the picture."""

    day: date
    requests: int
    size_bytes: int


class Comparison(Record, frozen=True, array_like=False):
    """What an agent asked of the web server before and after its home's first visit at the host."""

    agent: str  # EVERYBODY: all of them together
    homes: tuple[str, ...]
    first: date  # on which the first visit began; this day is of neither side
    before: Side
    after: Side
    bars: tuple[Bar, ...]


def compare(
    traffic: Traffic, rows: Sequence[KeptReceipt], day_of: DayOf, *, some_days: int = SOME_DAYS
) -> list[Comparison]:
    """A comparison for each agent of homes that made visits, and one for everybody together."""
    if not rows or not traffic.days:
        return []
    agents: dict[str, list[KeptReceipt]] = {}
    if traffic.has_agents:
        for kept in rows:
            if kept.agent:
                agents.setdefault(product(kept.agent), []).append(kept)
    found = [_comparison(agent, own, traffic, day_of, some_days) for agent, own in sorted(agents.items())]
    return [*found, _comparison(EVERYBODY, rows, traffic, day_of, some_days)]


def _comparison(
    agent: str, own: Sequence[KeptReceipt], traffic: Traffic, day_of: DayOf, some_days: int
) -> Comparison:
    first = day_of(min(kept.receipt.began for kept in own))
    bars = [Bar(day, *counts.get(agent, (0, 0))) for day, counts in sorted(traffic.days.items())]
    before = [bar for bar in bars if bar.day < first]
    after = [bar for bar in bars if bar.day > first]
    # The last days before, and the last ones there are.
    shown = (*before[-some_days:], *(bar for bar in bars if bar.day == first), *after[-some_days:])
    return Comparison(
        agent=agent and spelling(max(own, key=lambda kept: kept.receipt.began).agent),
        homes=tuple(dict.fromkeys(_name(rows) for rows in _by_home(own).values())),
        first=first,
        before=_side(before),
        after=_side(after),
        bars=shown,
    )


def _side(bars: Sequence[Bar]) -> Side:
    return Side(len(bars), sum(bar.requests for bar in bars), sum(bar.size_bytes for bar in bars))


def fewer(before: float, after: float) -> float | None:
    """By what share it became less, -1 for twice as much; None if there was nothing before."""
    return (before - after) / before if before else None


def spelling(agent: str) -> str:
    """The first product of a user agent as it is written; all of it where that says nothing."""
    name = agent.strip()
    first = name.replace("/", " ").partition(" ")[0]
    return name if first.casefold() == "mozilla" else first  # all browsers are called that


@lru_cache(maxsize=4096)
def product(agent: str) -> str:
    """By what a crawler is known, whatever its version: its first product (RFC 9110 10.1.5)."""
    return spelling(agent).casefold()


@lru_cache(maxsize=4096)
def is_loopback(client: str) -> bool:
    """True if the request came from this machine."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client in ("localhost", "unix:")
    mapped = getattr(address, "ipv4_mapped", None)  # as a server says that listens on both
    return (mapped or address).is_loopback
