"""The candidates of a srcset, and which of them usual screens show."""

import math
import re
from collections.abc import Iterator, Sequence

# Windows in which pages are looked at: their width in CSS pixels, and the screen's pixels for each of them.
_WINDOWS = ((1280, 1.0), (1920, 1.0), (1440, 2.0))
_FONT_PIXELS = 16.0

# Either what separates candidates, or a URL with its descriptors, which may hold commas in parentheses.
_CANDIDATE = re.compile(r"[\s,]++|(\S*[^\s,])(?:,|\s++((?:[^,(]|\([^)]*+(?:\)|$))*+),?|$)")
_DESCRIPTOR = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([wx])")
_SIZE = re.compile(
    r"\s*((?:\([^()]*\)\s*(?:and\s*)?)*)([0-9]{1,9}(?:\.[0-9]{0,9})?)(px|vw|r?em)\s*", re.IGNORECASE
)
_WIDTH = re.compile(r"\(\s*(min|max)-width\s*:\s*([0-9]{1,9}(?:\.[0-9]{0,9})?)(px|r?em)\s*\)", re.IGNORECASE)

Candidate = tuple[str, str]  # URL and descriptors


def candidates_of(srcset: str) -> list[Candidate]:
    return [(found[1], found[2] or "") for found in _CANDIDATE.finditer(srcset) if found[1]]


def shown(candidates: Sequence[Candidate], sizes: str) -> set[str]:
    """Returns the candidates that a browser takes in usual windows."""
    urls: set[str] = set()
    for window, ratio in _WINDOWS:
        width = next(_widths(sizes, window), window)
        densities = sorted(_densities(candidates, width))
        urls.update(_taken(densities, ratio))
    return urls


def _densities(candidates: Sequence[Candidate], width: float) -> Iterator[tuple[float, str]]:
    for url, written in candidates:
        found = _DESCRIPTOR.search(written)
        number = float(found[1]) if found else 1.0
        is_width = found is not None and found[2] == "w"
        yield number / max(width, 1.0) if is_width else number, url


def _taken(densities: Sequence[tuple[float, str]], ratio: float) -> Iterator[str]:
    """Yields the one that Chromium takes: nearest to the screen's, never less on a simple screen."""
    for at, (density, url) in enumerate(densities):
        if at + 1 == len(densities):
            yield url
            return
        following = densities[at + 1][0]
        if following < ratio:
            continue
        if density >= ratio or (ratio > 1 and ratio < math.sqrt(density * following)):
            yield url
            return


def _widths(sizes: str, window: int) -> Iterator[float]:
    """Yields the widths of the image in this window, of which the first counts; none is the whole width."""
    for part in re.split(r",(?![^(]*\))", sizes[:2000]):
        found = _SIZE.fullmatch(part)
        if found and _fits(found[1], window):
            yield float(found[2]) * {"px": 1.0, "vw": window / 100}.get(found[3].lower(), _FONT_PIXELS)


def _fits(conditions: str, window: int) -> bool:
    """Whether the window meets the conditions; those that are not about its width it does not."""
    stated = _WIDTH.findall(conditions)
    if len(stated) < conditions.count("("):
        return False
    limits = (
        (kind.lower(), float(number) * (1.0 if unit == "px" else _FONT_PIXELS))
        for kind, number, unit in stated
    )
    return all(window >= limit if kind == "min" else window <= limit for kind, limit in limits)
