"""Names to addresses: asynchronous, cached, all addresses of a name known; and which of them may be asked."""

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import aiodns

from sterna.errors import FetchError
from sterna.model import Record
from sterna.web.clock import Clock
from sterna.web.curl import CurlConfig
from sterna.web.urls import is_private

MIN_KEEP_SECONDS = 60.0
MAX_KEEP_SECONDS = 3600.0
KEEP_FAILURE_SECONDS = 1.0  # shorter than the pause before a second try
MAX_NAMES = 50_000


class Resolver(Protocol):
    """Finds the addresses of a hostname, the one that worked last in front."""

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        """All addresses of the name; FetchError("dns") if it has none."""

    def prefer(self, hostname: str, address: str) -> None:
        """Prefers this address from now on: it answered."""


class _Entry(Record, frozen=True):
    addresses: tuple[str, ...]
    until: float
    failure: str = ""


class DnsResolver:
    """Asks name servers, the system's if none are given, through c-ares; made inside a running loop."""

    def __init__(
        self, clock: Clock, *, timeout_seconds: float = 5.0, tries: int = 2, nameservers: Sequence[str] = ()
    ) -> None:
        self._clock = clock
        self._resolver = aiodns.DNSResolver(nameservers, timeout=timeout_seconds, tries=tries)
        # Both are changed by resolve() and prefer() alone, in the loop's thread.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Entry]] = {}

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        literal = literal_address(hostname)
        if literal:
            return (literal,)
        entry = self._entries.get(hostname)
        if entry is None or entry.until <= self._clock.now():
            task = self._asking.get(hostname)
            if task is None:  # one query for all callers that wait for the same name
                task = self._asking[hostname] = asyncio.create_task(self._ask(hostname))
                task.add_done_callback(lambda _: self._asking.pop(hostname, None))
            entry = await asyncio.shield(task)
        if entry.failure:
            raise FetchError("dns", f"no address found for {hostname}: {entry.failure}")
        return entry.addresses

    def prefer(self, hostname: str, address: str) -> None:
        entry = self._entries.get(hostname)
        if entry is None or entry.addresses[:1] == (address,) or address not in entry.addresses:
            return
        others = tuple(other for other in entry.addresses if other != address)
        self._entries[hostname] = _Entry((address, *others), entry.until)

    async def close(self) -> None:
        await self._resolver.close()

    async def _ask(self, hostname: str) -> _Entry:
        entry = await self._answer(hostname)
        self._entries[hostname] = entry
        self._entries.move_to_end(hostname)
        if len(self._entries) > MAX_NAMES:
            self._entries.popitem(last=False)
        return entry

    async def _answer(self, hostname: str) -> _Entry:
        try:
            answer = await self._resolver.getaddrinfo(
                hostname, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM
            )
        except (aiodns.error.DNSError, UnicodeError) as error:
            reason = str(error.args[-1]) if error.args else "unknown"
            return _Entry((), self._clock.now() + KEEP_FAILURE_SECONDS, reason)
        texts = (node.addr[0] for node in answer.nodes)
        found = dict.fromkeys(text.decode() if isinstance(text, bytes) else text for text in texts)
        if not found:
            return _Entry((), self._clock.now() + KEEP_FAILURE_SECONDS, "empty answer")
        ttl = min((node.ttl for node in answer.nodes), default=0)
        keep = min(max(float(ttl), MIN_KEEP_SECONDS), MAX_KEEP_SECONDS)
        return _Entry(tuple(found), self._clock.now() + keep)


@lru_cache(maxsize=65_536)
def literal_address(hostname: str) -> str:
    """The address that a hostname spells out itself, or ""."""
    try:
        return str(ipaddress.ip_address(hostname.strip("[]")))
    except ValueError:
        return ""


async def allowed_addresses(
    resolver: Resolver, hostname: str, *, may_be_private: bool, config: CurlConfig
) -> tuple[str, ...]:
    """The addresses that a request may use, ("",) where a proxy finds them; FetchError if it may use none."""
    if config.proxy:
        if not may_be_private:
            await _check_for_proxy(resolver, hostname, config)
        return ("",)
    found = await resolver.resolve(hostname)
    allowed = tuple(each for each in found if may_be_private or not is_private(each))
    if not allowed:
        raise _private(hostname)
    return allowed


async def _check_for_proxy(resolver: Resolver, hostname: str, config: CurlConfig) -> None:
    """Refuses what lies on a private network, seen from here: a proxy often stands inside of one."""
    if hostname.rstrip(".").rpartition(".")[2] == "localhost":  # RFC 6761 6.3: in no DNS, but in every proxy
        raise _private(hostname)
    try:
        found = await resolver.resolve(hostname)
    except FetchError as error:
        if config.proxy_resolves:
            return
        raise FetchError("dns", f"{error}; to leave such names to the proxy, use --proxy-resolves") from error
    if any(map(is_private, found)):  # the proxy may choose any of them
        raise _private(hostname)


def _private(hostname: str) -> FetchError:
    return FetchError("private_address", f"{hostname} is on a private network; use --allow-private")
