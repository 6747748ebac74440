"""The site's web server as reached from its own machine: HTTP to one address."""

import asyncio
import ipaddress
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from sterna.errors import ConfigError
from sterna.model import Record
from sterna.web.http import Fetcher, Request, Response, read_head
from sterna.web.urls import hostname_of, path_of

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 3.0

# An address for documentation (RFC 5737), which stands for any client outside: a server that evaluates this
# header does not take the crawler for its own machine.
OUTSIDER = "203.0.113.1"

_PORTS = {"http": 80, "https": 443}


class Upstream(Record, frozen=True):
    """Where a site's web server listens: scheme, address and port."""

    scheme: str
    address: str
    port: int

    @classmethod
    def of(cls, site: str, written: str = "") -> "Upstream":
        """The upstream as written, or else the site's own port on this machine; ConfigError if invalid."""
        parts = _parts(written or site, "upstream" if written else "site")
        address = _address(parts.hostname or "")
        if not address and written:
            raise ConfigError(f"upstream {written!r} has no IP address: write it as http://127.0.0.1:8080")
        return cls(parts.scheme, address or LOOPBACK, parts.port or _PORTS[parts.scheme])

    def origin(self, hostname: str) -> str:
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{f'[{hostname}]' if ':' in hostname else hostname}{port}"

    async def is_there(self) -> bool:
        """Whether anything accepts a connection there."""
        with suppress(OSError):
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(self.address, self.port)
            writer.close()
            return True
        return False


class UpstreamFetcher:
    """Requests pages from the web server under the site's name, as a proxy does for an outside client."""

    def __init__(self, fetcher: Fetcher, *, site: str, upstream: Upstream) -> None:
        self._fetcher = fetcher
        self._site = site
        self._upstream = upstream
        # The URL keeps the site's name, which TLS verifies; the port is the upstream's.
        self._origin = upstream.origin(hostname_of(site))
        scheme, _, host = site.partition("://")
        proto = (("X-Forwarded-Proto", scheme),) if scheme != upstream.scheme else ()
        self._headers = (("Host", host), ("X-Forwarded-For", OUTSIDER), *proto)
        # Names under which a server may redirect to itself if it does not know the site's port: no outside
        # client could follow these. The site's name with a default port is another site and stays.
        own = {upstream.origin(upstream.address), upstream.origin("localhost")}
        own |= {self._origin} if upstream.port not in _PORTS.values() else set()
        self._own = tuple(own - {site})

    async def fetch(self, request: Request) -> Response:
        # On loopback, compression only costs time at both ends.
        kept = tuple(field for field in request.headers if field[0].lower() != "accept-encoding")
        asked = replace(
            request,
            url=self._origin + path_of(request.url),
            address=self._upstream.address,
            headers=(*kept, *self._headers),
        )
        return self._as_outside(await self._fetcher.fetch(asked))

    def _as_outside(self, response: Response) -> Response:
        """The response; a redirect to the upstream itself becomes one to the site, as proxies do."""
        fields = response.headers if 300 <= response.status < 400 else ()
        location = next((value for name, value in fields if name == "location"), "")
        own = next((each for each in self._own if f"{location}/".startswith(f"{each}/")), None)
        if own is None:
            return response
        target = self._site + location[len(own) :]
        head = response.head.replace(
            location.encode("latin-1", "replace"), target.encode("latin-1", "replace"), 1
        )
        return replace(response, head=head, headers=read_head(head))


def _parts(url: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{what} {url!r} is invalid: {error}") from error
    is_origin = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in _PORTS or not parts.hostname or not is_origin or port == 0:
        raise ConfigError(
            f"{what} {url!r} is not an origin: scheme, host and port, as in http://127.0.0.1:8080"
        )
    return parts


def _address(hostname: str) -> str:
    """The IP address in a hostname, or ""."""
    if hostname == "localhost":
        return LOOPBACK
    try:
        return str(ipaddress.ip_address(hostname))
    except ValueError:
        return ""
