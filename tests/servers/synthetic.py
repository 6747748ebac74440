"""A synthetic web with stated statistics, made from its seed alone (as BUbiNG's RandomNamedGraphServer)."""

import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers.plain import Listener, ListeningServer, Reply, Request, send

_CHILDREN = 4  # of a page in its site's tree
_LARGEST = 100  # times the mean: the power law's tail ends there
_WORDS = ["tern", "wind", "north", "coast", "island", "summer", "egg", "nest", "wing", "sea", "ice", "light"]
_TEXT = " ".join(random.Random(0).choices(_WORDS, k=4_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticWeb:
    """Sites of pages: page 0 is `/`, from which a tree reaches every page; further links are random.

    A page has one link of the tree on average, and a geometrically distributed number of others, so that
    the mean is `mean_degree`; `external_share` of all links lead to any page of any other site. Site sizes
    are equal or, with a `size_exponent` above 2, follow that power law with the mean `pages_per_site`.
    """

    sites: int
    pages_per_site: int
    mean_degree: float = 8.0
    seed: int = 0
    external_share: float = 0.1
    bytes_per_page: int = 4_000
    size_exponent: float = 0.0
    has_names: bool = False  # sites are host names on one address, instead of addresses

    def host(self, site: int) -> str:
        """The host name or the loopback address of a site."""
        return f"site{site}.test" if self.has_names else f"127.1.{site // 250}.{site % 250 + 1}"

    def site(self, host: str) -> int:
        """The site of a host, the other way round."""
        if self.has_names:
            return int(host.removeprefix("site").removesuffix(".test"))
        _, _, high, low = host.split(".")
        return int(high) * 250 + int(low) - 1

    def size(self, site: int) -> int:
        """How many pages a site has."""
        if not self.size_exponent:
            return self.pages_per_site
        shape = self.size_exponent - 1
        drawn = random.Random(f"{self.seed}/{site}").paretovariate(shape)
        return max(
            1, min(int(self.pages_per_site * (shape - 1) / shape * drawn), _LARGEST * self.pages_per_site)
        )

    def links(self, site: int, page: int) -> Iterator[tuple[int, int]]:
        """The (site, page) pairs that a page links to, in order."""
        size = self.size(site)
        first = _CHILDREN * page + 1
        yield from ((site, child) for child in range(first, min(first + _CHILDREN, size)))
        source = random.Random(f"{self.seed}/{site}/{page}")
        others = max(0.0, self.mean_degree - 1)
        if not others:
            return
        external = self.external_share * self.mean_degree / others if self.sites > 1 else 0.0
        for _ in range(_draw_geometric(source, others)):
            target = site
            if source.random() < external:
                target = (site + 1 + source.randrange(self.sites - 1)) % self.sites
            yield target, source.randrange(self.size(target))

    def page(self, site: int, page: int, *, port: int) -> bytes:
        """The HTML of a page, filled up to `bytes_per_page`."""
        anchors = "".join(
            f'<a href="{self._href(target, number, site=site, port=port)}">page {number}</a>\n'
            for target, number in self.links(site, page)
        )
        start = f"<!doctype html><title>Site {site} page {page}</title>\n{anchors}<p>"
        offset = random.Random(page).randrange(len(_TEXT))
        missing = max(0, self.bytes_per_page - len(start))
        text = _TEXT[offset:] + _TEXT * (missing // len(_TEXT) + 1)
        return (start + text[:missing]).encode()

    def _href(self, target: int, page: int, *, site: int, port: int) -> str:
        return path(page) if target == site else f"http://{self.host(target)}:{port}{path(page)}"


def path(page: int) -> str:
    """Where a page is found within its site."""
    return f"/{page}.html" if page else "/"


def _draw_geometric(source: random.Random, mean: float) -> int:
    return int(math.log(1 - source.random()) / math.log(mean / (1 + mean)))


@dataclass(frozen=True, slots=True)
class SyntheticHit:
    """A request as it arrived, `time` by the monotonic clock; both counts are of its site and include it."""

    time: float
    site: int
    path: str
    connections: int  # open, on which something was asked
    under_way: int  # requests not yet answered


class SyntheticServer(ListeningServer):
    """Serves a synthetic web: one port, each site on its own loopback address or under its host name."""

    def __init__(self, web: SyntheticWeb, *, latency_seconds: float = 0.0, port: int = 0) -> None:
        self.web = web
        self.log: list[SyntheticHit] = []
        self._latency_seconds = latency_seconds
        hosts = ["127.0.0.1"] if web.has_names else [web.host(site) for site in range(web.sites)]
        super().__init__(Listener(self._answer, addresses=hosts, port=port, on_close=self._forget))
        self._asked: defaultdict[int, set[int]] = defaultdict(set)  # sites, by open connection
        self._connections: Counter[int] = Counter()  # open ones, by site
        self._under_way: Counter[int] = Counter()  # requests, by site

    def url(self, site: int) -> str:
        """Page 0 of a site, where a crawl of it starts."""
        return f"http://{self.web.host(site)}:{self.port}/"

    def expected_urls(self, site: int) -> frozenset[str]:
        """Exactly the pages of a site that can be reached from its page 0: all it has."""
        start = self.url(site).rstrip("/")
        return frozenset(start + path(page) for page in range(self.web.size(site)))

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        host = request.headers.get("host", "").partition(":")[0] if self.web.has_names else request.address
        site = self.web.site(host)
        if site not in self._asked[request.connection]:
            self._asked[request.connection].add(site)
            self._connections[site] += 1
        self._under_way[site] += 1
        counts = self._connections[site], self._under_way[site]
        self.log.append(SyntheticHit(time.monotonic(), site, request.target, *counts))
        try:
            await asyncio.sleep(self._latency_seconds)
            return await send(request, writer, self._reply(site, request.path))
        finally:
            self._under_way[site] -= 1

    def _reply(self, site: int, target: str) -> Reply:
        name = target.removeprefix("/").removesuffix(".html")
        page = int(name) if name.isdecimal() else 0
        if target != path(page) or page >= self.web.size(site):
            return Reply(404, body=b"no such page")
        return Reply(body=self.web.page(site, page, port=self.port))

    def _forget(self, connection: int) -> None:
        self._connections.subtract(self._asked.pop(connection, ()))
