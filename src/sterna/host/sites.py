"""The hosts of many sites in one process: each request goes to the service of the site that it names."""

import asyncio
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from sterna.errors import ConfigError, SternaError
from sterna.host.calls import HostRequest, Reply, http_error
from sterna.host.config import HostConfig
from sterna.host.service import Service
from sterna.model import Record

_log = logging.getLogger(__name__)

_PORTS = {"http": 80, "https": 443}


class Address(Record, frozen=True):
    """Where homes reach the host of a site: its own name, or that of its endpoint."""

    hostname: str
    port: int
    prefix: str  # of paths; "": any

    def fit(self, hostname: str, port: int | None, path: str) -> tuple[bool, int, bool] | None:
        """The better the greater; None if a request with this name and path is for another."""
        if hostname != self.hostname:
            return None
        is_below = path == self.prefix or path.startswith(f"{self.prefix}/")
        # A proxy in front may have stripped the prefix.
        return (is_below, len(self.prefix) if is_below else 0, port in (None, self.port))


class Sites:
    """Answers for many sites as a `Service` for one; each has a policy, keys, state and log of its own."""

    def __init__(self, services: Sequence[Service]) -> None:
        """ConfigError if two are of the same site."""
        self._services = services
        # Changed by restore().
        self._addresses = [(address, each) for each in services for address in addresses_of(each.config)]
        sites = [each.config.site for each in services]
        if twice := sorted({site for site in sites if sites.count(site) > 1}):
            raise ConfigError(f"two folders are of {twice[0]}: remove one of them")

    def find(self, host: str, path: str) -> Service | None:
        """The service of the site that a request names; None if that is none, or not clear."""
        hostname, port = _split(host)
        fits = [(address.fit(hostname, port, path), each) for address, each in self._addresses]
        best = max((fit for fit, _ in fits if fit), default=None)
        found = {id(each): each for fit, each in fits if fit and fit == best}
        return next(iter(found.values())) if len(found) == 1 else None

    async def restore(self) -> None:
        """One whose visits cannot be listed is not served; the other sites are."""
        for each in self._services:
            try:
                await each.restore()
            except SternaError as error:
                _log.error("left out: %s: cannot go on with its visits: %s", each.config.site, error)
                self._addresses = [(address, its) for address, its in self._addresses if its is not each]

    async def respond(self, request: HostRequest) -> Reply:
        service = self.find(request.host, request.path)
        if service is None:
            return http_error(421, "No site of this name has its host here")
        return await service.respond(request)

    async def watch(self) -> None:
        results = await asyncio.gather(*(each.watch() for each in self._services), return_exceptions=True)
        for each, result in zip(self._services, results, strict=True):
            _log.error("%s: changes of its policy are no longer seen: %r", each.config.site, result)

    def stop(self) -> None:
        for each in self._services:
            each.stop()

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._services))


def addresses_of(config: HostConfig) -> tuple[Address, Address]:
    site, endpoint = urlsplit(config.site), urlsplit(config.address)
    return (
        Address(site.hostname or "", site.port or _PORTS[site.scheme], ""),
        Address(endpoint.hostname or "", endpoint.port or _PORTS[endpoint.scheme], endpoint.path.rstrip("/")),
    )


def _split(host: str) -> tuple[str, int | None]:
    """The hostname and the port in a field Host; no name fits an invalid one."""
    try:
        parts = urlsplit(f"//{host.strip().lower()}")
        return (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", None
