"""Where a host's pages come from: its own site, over HTTP or from the disk, and nothing else in the world."""

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

from sterna.errors import ConfigError, FetchError
from sterna.host.config import HostConfig
from sterna.host.site.closed import Closed
from sterna.host.site.rooted import RootedFetcher
from sterna.host.site.upstream import Upstream, UpstreamFetcher
from sterna.web.clock import Clock
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.document_root import DocumentRoot, RootFetcher
from sterna.web.http import Fetcher, Request, Response
from sterna.web.urls import Canonical, hostname_of

# How a document root is held against the web server: each file, the first of each kind in a folder, or not at
# all, where there is no web server.
CHECKS = ("every", "folder", "never")

_log = logging.getLogger(__name__)
_PRINTABLE = re.compile("[!-~]+")


class SiteFetcher:
    """Lets through what is asked of the site itself and is not closed; everything else is refused unasked."""

    def __init__(self, fetcher: Fetcher, *, site: str, closed: Closed) -> None:
        self._fetcher = fetcher
        self._closed = closed
        self._site = site

    async def fetch(self, request: Request) -> Response:
        url = request.url
        # With its slash the site's name is whole: no user, port or longer name can follow it.
        if not url.startswith(f"{self._site}/") or not _PRINTABLE.fullmatch(url):
            raise FetchError("refused", f"{url!r} is not a page of {self._site}")
        if url in self._closed:
            raise FetchError("refused", f"{url} is closed to crawlers")
        return await self._fetcher.fetch(request)


class ShieldedFetcher:
    """Keeps from one visit what is closed to it when it asks: that may change while it is here."""

    def __init__(self, fetcher: Fetcher, closed: Callable[[], tuple[str, ...]]) -> None:
        self._fetcher = fetcher
        self._closed = closed

    async def fetch(self, request: Request) -> Response:
        if request.url in _closed(self._closed()):
            raise FetchError("refused", f"{request.url} is closed to crawlers")
        return await self._fetcher.fetch(request)


@lru_cache(maxsize=256)
def _closed(paths: tuple[str, ...]) -> Closed:
    return Closed(paths)


class LoopbackResolver:
    """Knows one name, and no name server."""

    def __init__(self, hostname: str, address: str) -> None:
        self._hostname = hostname
        self._address = address

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        if hostname != self._hostname:
            raise FetchError("refused", f"a crawler at {self._hostname} may not reach {hostname}")
        return (self._address,)

    def prefer(self, hostname: str, address: str) -> None:
        """There is nothing to choose from."""


def resolver_of(config: HostConfig) -> LoopbackResolver:
    """What a runtime at this site looks names up with."""
    return LoopbackResolver(hostname_of(config.site), Upstream.of(config.site, config.upstream).address)


def check_source(config: HostConfig) -> None:
    """ConfigError says what of the configuration cannot be; nothing is asked of anybody."""
    if Canonical()(config.site) != f"{config.site}/":
        raise ConfigError(f"site {config.site!r} cannot be: write it as https://www.example.org")
    if config.check not in ("", *CHECKS):
        raise ConfigError(f"check {config.check!r} cannot be: one of {', '.join(CHECKS)}")
    if config.root:
        DocumentRoot(config.root, _aliases(config))
    elif config.check or config.aliases:
        raise ConfigError("check and aliases say nothing without a root: name the document root too")
    Upstream.of(config.site, config.upstream)


@asynccontextmanager
async def open_source(config: HostConfig, clock: Clock) -> AsyncIterator[Fetcher]:
    """The site's pages; ConfigError if the configuration cannot be."""
    check_source(config)
    upstream, closed = Upstream.of(config.site, config.upstream), Closed(config.policy.closed)
    if config.root and config.check == "never":
        if await upstream.is_there():
            _log.warning("a web server answers for %s and is not asked: its rules do not hold", config.site)
        files = RootFetcher(config.root, _aliases(config))
        yield SiteFetcher(files, site=config.site, closed=closed)
        return
    curl = CurlFetcher(CurlConfig(connections=config.limits.connections, ca_file=config.ca_file))
    try:
        fetcher: Fetcher = UpstreamFetcher(curl, site=config.site, upstream=upstream)
        if config.root:
            root = DocumentRoot(config.root, _aliases(config))
            fetcher = RootedFetcher(root, fetcher, clock, judges_every=config.check != "folder")
        yield SiteFetcher(fetcher, site=config.site, closed=closed)
    finally:
        await curl.close()


def _aliases(config: HostConfig) -> list[tuple[str, Path]]:
    return [(alias.path, alias.folder) for alias in config.aliases]
