"""The before and after of a site as pictures: bars of text, and SVG. Everything shown is escaped."""

from collections.abc import Callable, Sequence
from html import escape

from sterna.host.owner.savings import EVERYBODY, Bar, Comparison, Side, fewer

TEXT_WIDTH = 40  # of the longest bar
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths

WIDTH, PANEL, LEFT, TOP, BARS, LINE = 860, 240, 20, 80, 110, 16
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.t{font-weight:bold;font-size:14px}"
    ".b{fill:#b5651d}.f{fill:#bbb}.a{fill:#2a7f62}"
)

SizeText = Callable[[float], str]  # 12.3 MB and the like


def title_of(comparison: Comparison) -> str:
    """Whose traffic a picture shows."""
    homes = ", ".join(comparison.homes)
    if comparison.agent == EVERYBODY:
        return f"all requests; first visit at the host: {comparison.first} ({homes})"
    return f"requests of {comparison.agent} ({homes}); first visit at the host: {comparison.first}"


def verdict_of(comparison: Comparison, size_text: SizeText) -> list[str]:
    """Before and after in words."""
    before, after = comparison.before, comparison.after
    lines = [f"before  {_side(before, size_text)}", f"after   {_side(after, size_text)}"]
    if before.days and after.days:
        lines.append(
            f"change  {_change(fewer(before.daily_requests, after.daily_requests), 'requests')},"
            f" {_change(fewer(before.daily_bytes, after.daily_bytes), 'bytes')}"
        )
    return lines


def _side(side: Side, size_text: SizeText) -> str:
    if not side.days:
        return "the log has no day of it"
    days = "1 day" if side.days == 1 else f"{side.days:,} days"
    return f"{side.daily_requests:,.1f} requests, {size_text(side.daily_bytes)} a day ({days})"


def _change(share: float | None, what: str) -> str:
    if share is None:
        return f"no {what} before"
    return f"{abs(share):.1%} {'fewer' if share >= 0 else 'more'} {what}"


# -- text --------------------------------------------------------------------------------------------------


def text_of(comparison: Comparison, size_text: SizeText, *, has_blocks: bool) -> list[str]:
    """A line for each day, its bar as long as the day had requests."""
    most = max((bar.requests for bar in comparison.bars), default=0)
    lines = [title_of(comparison)]
    for bar in comparison.bars:
        mark = "*" if bar.day == comparison.first else " "
        drawn = _drawn(bar.requests, most, has_blocks=has_blocks)
        told = f"{bar.requests:>9,} requests  {size_text(bar.size_bytes):>9}"
        lines.append(f"  {bar.day} {mark} {drawn:<{TEXT_WIDTH}} {told}")
    return [*lines, *(f"  {line}" for line in verdict_of(comparison, size_text))]


def _drawn(count: int, most: int, *, has_blocks: bool) -> str:
    if not count:
        return ""
    eighths = max(round(count * TEXT_WIDTH * 8 / most), 1)
    if not has_blocks:
        return "#" * max(round(eighths / 8), 1)
    whole, rest = divmod(eighths, 8)
    return _BLOCKS[8] * whole + (_BLOCKS[rest] if rest else "")


# -- SVG ---------------------------------------------------------------------------------------------------


def svg_of(comparisons: Sequence[Comparison], site: str, size_text: SizeText) -> str:
    """One picture with a panel for each comparison; no script, nothing from elsewhere."""
    height = PANEL * max(len(comparisons), 1) + 40
    panels = "".join(_panel(each, size_text, 40 + PANEL * at) for at, each in enumerate(comparisons))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}"><title>{_text(f"Requests to {site}")}</title>'
        f"<style>{_STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text class="t" x="{LEFT}" y="24">{_text(f"Requests to {site} by day")}</text>{panels}</svg>\n'
    )


def _panel(comparison: Comparison, size_text: SizeText, top: int) -> str:
    most = max((bar.requests for bar in comparison.bars), default=0) or 1
    step = (WIDTH - 2 * LEFT) / max(len(comparison.bars), 1)
    base = top + TOP + BARS
    parts = [
        f'<text class="t" x="{LEFT}" y="{top + 18}">{_text(title_of(comparison))}</text>',
        *(
            f'<text x="{LEFT}" y="{top + 20 + LINE * at}">{_text(line)}</text>'
            for at, line in enumerate(verdict_of(comparison, size_text), start=1)
        ),
        *(
            _bar(bar, comparison, LEFT + step * at, base, step, BARS * bar.requests / most, size_text)
            for at, bar in enumerate(comparison.bars)
        ),
        f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - LEFT}" y2="{base}" stroke="#222"/>',
    ]
    if comparison.bars:
        first, last = comparison.bars[0].day, comparison.bars[-1].day
        parts.append(f'<text x="{LEFT}" y="{base + 16}">{_text(str(first))}</text>')
        parts.append(f'<text x="{WIDTH - LEFT}" y="{base + 16}" text-anchor="end">{_text(str(last))}</text>')
    return "".join(parts)


def _bar(
    bar: Bar, comparison: Comparison, x: float, base: int, step: float, height: float, size_text: SizeText
) -> str:
    side = "b" if bar.day < comparison.first else "a" if bar.day > comparison.first else "f"
    told = f"{bar.day}: {bar.requests:,} requests, {size_text(bar.size_bytes)}"
    return (
        f'<rect class="{side}" x="{x:.1f}" y="{base - height:.1f}" width="{step * 0.8:.1f}"'
        f' height="{height:.1f}"><title>{_text(told)}</title></rect>'
    )


def _text(text: str) -> str:
    """Safe between tags; names and sites may come from strangers, and XML has no control characters."""
    return escape("".join(sign if sign.isprintable() else "\ufffd" for sign in text))
