"""What visits spared the site: the web server's log before and after, in words and as a picture. No I/O."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, tzinfo
from functools import lru_cache
from html import escape

from sterna.host.owner.access_log import Hit
from sterna.host.owner.receipts import KeptReceipt, grouped, name_of
from sterna.host.owner.status import size_text
from sterna.model import Record
from sterna.web.http_app import is_loopback

SOME_DAYS = 14  # shown on each side of the first visit
EVERYBODY = ""  # in place of an agent: all of them together
OWN_AGENT = "sterna"  # the host itself: its survey of the site, its load probes
_QUARTER = 900  # seconds: midnight in any zone is a multiple

TEXT_WIDTH = 40  # of the longest bar
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths

WIDTH, PANEL, LEFT, TOP, BARS, LINE = 860, 240, 20, 80, 110, 16
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.t{font-weight:bold;font-size:14px}"
    ".b{fill:#b5651d}.f{fill:#bbb}.a{fill:#2a7f62}"
)

DayOf = Callable[[float], date]


def days_of(zone: tzinfo | None) -> DayOf:
    """A function from times to days in a zone; None is this machine's own."""

    @lru_cache(maxsize=4096)
    def day(quarter: int) -> date:
        return datetime.fromtimestamp(quarter * _QUARTER, zone).date()

    return lambda time: day(int(time // _QUARTER))


# -- the log -----------------------------------------------------------------------------------------------


class Traffic:
    """The requests of a log by day and agent, without those of crawlers at the site itself."""

    def __init__(self, agents: Iterable[str], day_of: DayOf, *, here: Iterable[str] = ()) -> None:
        self._agents = {product(agent) for agent in agents}
        self._day_of = day_of
        self._here = frozenset(here)  # addresses of the host in the log, besides loopback
        # Changed by add() alone; requests and bytes by agent.
        self.days: dict[date, dict[str, list[int]]] = {}
        self.local_requests = 0
        self.has_agents = False  # the log names user agents
        self.has_outsiders = False  # requests came from other machines

    def add(self, hit: Hit) -> None:
        day = self.days.setdefault(self._day_of(hit.time), {})
        self.has_agents |= hit.agent is not None
        agent = product(hit.agent or "")
        is_known = agent in self._agents
        is_local = hit.client in self._here or is_this_machine(hit.client)
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


class Bar(Record, frozen=True, array_like=False):
    day: date
    requests: int
    size_bytes: int


class Comparison(Record, frozen=True, array_like=False):
    """The requests of an agent to the web server before and after its home's first visit at the host."""

    agent: str  # EVERYBODY: all of them together
    homes: tuple[str, ...]
    first: date  # of the first visit; this day belongs to neither side
    before: Side
    after: Side
    bars: tuple[Bar, ...]


def compare(
    traffic: Traffic, rows: Sequence[KeptReceipt], day_of: DayOf, *, some_days: int = SOME_DAYS
) -> list[Comparison]:
    """A comparison for each agent of homes that made visits, and one for all agents together."""
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
    # The last days before the first visit, and the last days of the log.
    shown = (*before[-some_days:], *(bar for bar in bars if bar.day == first), *after[-some_days:])
    return Comparison(
        agent=agent and spelling(max(own, key=lambda kept: kept.receipt.began).agent),
        homes=tuple(dict.fromkeys(name_of(rows) for rows in grouped(own).values())),
        first=first,
        before=_side(before),
        after=_side(after),
        bars=shown,
    )


def _side(bars: Sequence[Bar]) -> Side:
    return Side(len(bars), sum(bar.requests for bar in bars), sum(bar.size_bytes for bar in bars))


def spelling(agent: str) -> str:
    """The first product of a user agent as it is written; all of it for browsers."""
    name = agent.strip()
    first = name.replace("/", " ").partition(" ")[0]
    return name if first.casefold() == "mozilla" else first  # every browser claims that name


@lru_cache(maxsize=4096)
def product(agent: str) -> str:
    """The name of a crawler without its version: its first product (RFC 9110 10.1.5)."""
    return spelling(agent).casefold()


@lru_cache(maxsize=4096)
def is_this_machine(client: str) -> bool:
    """True if a request with this client in the log came from this machine."""
    return client in ("localhost", "unix:") or is_loopback(client)


# -- in words ----------------------------------------------------------------------------------------------


def title_of(comparison: Comparison) -> str:
    homes = ", ".join(comparison.homes)
    if comparison.agent == EVERYBODY:
        return f"all requests; first visit at the host: {comparison.first} ({homes})"
    return f"requests of {comparison.agent} ({homes}); first visit at the host: {comparison.first}"


def summary_of(comparison: Comparison) -> list[str]:
    before, after = comparison.before, comparison.after
    lines = [f"before  {_side_text(before)}", f"after   {_side_text(after)}"]
    if before.days and after.days:
        requests = _change(before.requests / before.days, after.requests / after.days, "requests")
        size = _change(before.size_bytes / before.days, after.size_bytes / after.days, "bytes")
        lines.append(f"change  {requests}, {size}")
    return lines


def _side_text(side: Side) -> str:
    if not side.days:
        return "the log covers no day of it"
    days = "1 day" if side.days == 1 else f"{side.days:,} days"
    size = size_text(side.size_bytes / side.days)
    return f"{side.requests / side.days:,.1f} requests, {size} a day ({days})"


def _change(before: float, after: float, what: str) -> str:
    if not before:
        return f"no {what} before"
    share = (before - after) / before
    return f"{abs(share):.1%} {'fewer' if share >= 0 else 'more'} {what}"


def text_of(comparison: Comparison, *, has_blocks: bool) -> list[str]:
    """A line for each day, with a bar for its requests."""
    most = max((bar.requests for bar in comparison.bars), default=0)
    lines = [title_of(comparison)]
    for bar in comparison.bars:
        mark = "*" if bar.day == comparison.first else " "
        drawn = _drawn(bar.requests, most, has_blocks=has_blocks)
        text = f"{bar.requests:>9,} requests  {size_text(bar.size_bytes):>9}"
        lines.append(f"  {bar.day} {mark} {drawn:<{TEXT_WIDTH}} {text}")
    return [*lines, *(f"  {line}" for line in summary_of(comparison))]


def _drawn(count: int, most: int, *, has_blocks: bool) -> str:
    if not count:
        return ""
    eighths = max(round(count * TEXT_WIDTH * 8 / most), 1)
    if not has_blocks:
        return "#" * max(round(eighths / 8), 1)
    whole, rest = divmod(eighths, 8)
    return _BLOCKS[8] * whole + (_BLOCKS[rest] if rest else "")


def svg_of(comparisons: Sequence[Comparison], site: str) -> str:
    """One picture with a panel for each comparison, without scripts and external content."""
    height = PANEL * max(len(comparisons), 1) + 40
    panels = "".join(_panel(each, 40 + PANEL * at) for at, each in enumerate(comparisons))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}"><title>{_text(f"Requests to {site}")}</title>'
        f"<style>{_STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text class="t" x="{LEFT}" y="24">{_text(f"Requests to {site} by day")}</text>{panels}</svg>\n'
    )


def _panel(comparison: Comparison, top: int) -> str:
    most = max((bar.requests for bar in comparison.bars), default=0) or 1
    step = (WIDTH - 2 * LEFT) / max(len(comparison.bars), 1)
    base = top + TOP + BARS
    parts = [
        f'<text class="t" x="{LEFT}" y="{top + 18}">{_text(title_of(comparison))}</text>',
        *(
            f'<text x="{LEFT}" y="{top + 20 + LINE * at}">{_text(line)}</text>'
            for at, line in enumerate(summary_of(comparison), start=1)
        ),
        *(
            _bar(bar, comparison, LEFT + step * at, base, step, BARS * bar.requests / most)
            for at, bar in enumerate(comparison.bars)
        ),
        f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - LEFT}" y2="{base}" stroke="#222"/>',
    ]
    if comparison.bars:
        first, last = comparison.bars[0].day, comparison.bars[-1].day
        parts.append(f'<text x="{LEFT}" y="{base + 16}">{_text(str(first))}</text>')
        parts.append(f'<text x="{WIDTH - LEFT}" y="{base + 16}" text-anchor="end">{_text(str(last))}</text>')
    return "".join(parts)


def _bar(bar: Bar, comparison: Comparison, x: float, base: int, step: float, height: float) -> str:
    side = "b" if bar.day < comparison.first else "a" if bar.day > comparison.first else "f"
    text = f"{bar.day}: {bar.requests:,} requests, {size_text(bar.size_bytes)}"
    return (
        f'<rect class="{side}" x="{x:.1f}" y="{base - height:.1f}" width="{step * 0.8:.1f}"'
        f' height="{height:.1f}"><title>{_text(text)}</title></rect>'
    )


def _text(text: str) -> str:
    """Escaped: names come from strangers, and XML allows no control characters."""
    return escape("".join(sign if sign.isprintable() else "\ufffd" for sign in text))
