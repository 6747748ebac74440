"""The synthetic web of bench.ledger: 100,000 sites, the r-th of a size in proportion to 1/r.

A page has 50 links: 20 of its site's menu, 19 to its neighbours, 1 to a URL nobody has seen, 10 to other
sites, chosen by their size, and there to a page by an in-degree with the exponent 2.1 (Broder et al. 2000);
one of those in a hundred is new too.
"""

import math
import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

from sterna.model import Page, Target
from sterna.web.urls import fingerprint

SITES = 100_000
MENU, NEAR, OUTSIDE = 20, 9, 10
TAIL = 1 / (1 - 1 / 1.1)  # an in-degree of exponent 2.1 is a popularity of rank ** -(1 / 1.1)


class Web:
    """The URLs there are: how many of each site, and which ones a page links to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.random = random.Random(time.time())
        self.sizes = array("q", [0]) * SITES
        if path.exists():
            self.sizes = array("q", path.read_bytes())

    def save(self) -> None:
        self._path.write_bytes(self.sizes.tobytes())

    def share(self, site: int, urls: int) -> int:
        """How many of so many URLs are this site's."""
        return max(1, round(urls / ((_rank(site) + 1) * _HARMONIC)))

    def target(self, site: int, page: int, referrer: str) -> Target:
        # One way in a hundred is a nearer one than all before.
        nearer = self.random.random() < 0.01
        return Target(url(site, page), max(0, page.bit_length() // 2 + 1 - nearer), referrer)

    def new_page(self, site: int) -> int:
        self.sizes[site] += 1
        return self.sizes[site] - 1

    def links(self, site: int, page: int) -> Iterator[tuple[int, int]]:
        """The (site, page) pairs of a page's links."""
        size = self.sizes[site]
        yield from ((site, each) for each in range(min(MENU, size)))
        yield from ((site, each) for each in range(max(0, page - NEAR), min(page + NEAR + 1, size)))
        yield site, self.new_page(site)
        draw = self.random.random
        for _ in range(OUTSIDE):
            other = site_at(int(SITES ** draw()) - 1)
            if draw() < 0.01:
                yield other, self.new_page(other)
            else:
                yield other, int(self.sizes[other] * draw() ** TAIL)


_HARMONIC = math.log(SITES) + 0.5772
_STRIDE = 7_919  # numbers and ranks of sites are unrelated: their rows do not lie in the order of their size
_BACK = pow(_STRIDE, -1, SITES)


def site_at(rank: int) -> int:
    return rank * _STRIDE % SITES


def _rank(site: int) -> int:
    return site * _BACK % SITES


def origin(site: int) -> str:
    return f"https://www.site-{site:05d}.example"


def url(site: int, page: int) -> str:
    # Written out: it is called for every link.
    if page:
        return f"https://www.site-{site:05d}.example/section-{page % 97}/article-{page:08d}.html"
    return f"https://www.site-{site:05d}.example/"


def site_number(origin_or_url: str) -> int:
    return int(origin_or_url[17:22])


def page_number(address: str) -> int:
    return int(address[-13:-5]) if address.endswith(".html") else 0


def as_page(target: Target, now: float) -> Page:
    return Page(
        url=target.url,
        fingerprint=fingerprint(target.url),
        depth=target.depth,
        fetched=now,
        status=200,
        digest=bytes(16),
        etag='"5f3c-17a2b"',
        modified="Mon, 16 Nov 2026 10:00:00 GMT",
    )
