"""When a request may start: delays per site, rates per address, per domain and in total.

Whatever makes a request wait is a hold: a key and the time before which nothing under it may start. A site's
delay, its Retry-After, an address's rate and a debt of bytes are all holds, so one small table in the ledger
carries them across a restart.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from sterna.model import Etiquette, Hold
from sterna.web.urls import domain_of, hostname_of

TOTAL = "total"
PRUNE_ABOVE = 10_000


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests and bytes a second; 0 is no limit."""

    requests: float = 0.0
    bytes: float = 0.0


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits that all visits of a runtime share."""

    address: Rate = Rate(requests=10.0)
    domain: Rate = Rate(requests=5.0)
    total: Rate = Rate()


NO_LIMITS = Limits(address=Rate(), domain=Rate())


class Keys(msgspec.Struct, frozen=True):
    """The keys under which one request is held."""

    site: str
    address: str
    domain: str


def site_key(site: str) -> str:
    return f"site {site}"


@lru_cache(maxsize=65_536)
def keys_of(site: str, address: str) -> Keys:
    hostname = hostname_of(site)
    return Keys(site_key(site), f"address {address or hostname}", f"domain {domain_of(hostname)}")


class Gate:
    """Holds by key. Pure: the caller passes the time, and nothing waits here."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Key to time; changed by start(), finish(), hold() and reserve() only.
        self._until: dict[str, float] = {}

    def restore(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            self.hold(hold.key, hold.until)

    def hold(self, key: str, until: float) -> None:
        """Holds `key` until `until`; never shortens a hold."""
        if until > self._until.get(key, 0.0):
            self._until[key] = until

    def until(self, key: str) -> float:
        return self._until.get(key, 0.0)

    def ready_at(self, keys: Keys) -> float:
        """When site, address and domain let a request start."""
        until = self._until.get
        return max(until(keys.site, 0.0), until(keys.address, 0.0), until(keys.domain, 0.0))

    def reserve(self, now: float) -> float:
        """Reserves the next start that the total rate allows; returns its time."""
        start = max(now, self._until.get(TOTAL, 0.0))
        if self._limits.total.requests:
            self._until[TOTAL] = start + 1.0 / self._limits.total.requests
        return start

    def start(self, keys: Keys, now: float, *, delay: float) -> None:
        """A request starts: the next one waits for the site's delay and the rates."""
        if delay:
            self.hold(keys.site, now + delay)
        self._spend(keys.address, now, per_second=self._limits.address.requests)
        self._spend(keys.domain, now, per_second=self._limits.domain.requests)

    def finish(self, keys: Keys, now: float, *, delay: float, size_bytes: int) -> None:
        """A request ended: the delay counts from here, so a server never sees a shorter gap."""
        if delay:
            self.hold(keys.site, now + delay)
        self._spend(keys.address, now, amount=size_bytes, per_second=self._limits.address.bytes)
        self._spend(keys.domain, now, amount=size_bytes, per_second=self._limits.domain.bytes)
        self._spend(TOTAL, now, amount=size_bytes, per_second=self._limits.total.bytes)

    def holds(self, keys: Sequence[str], now: float) -> tuple[Hold, ...]:
        """The current holds on these keys, for the next parcel."""
        if len(self._until) > PRUNE_ABOVE:
            self._until = {key: until for key, until in self._until.items() if until > now}
        return tuple(Hold(key, self._until[key]) for key in keys if self._until.get(key, 0.0) > now)

    def _spend(self, key: str, now: float, *, per_second: float, amount: float = 1.0) -> None:
        if per_second and amount:
            self._until[key] = max(now, self._until.get(key, 0.0)) + amount / per_second


def next_delay(etiquette: Etiquette, *, response_seconds: float, crawl_delay: float) -> float:
    """The pause after a response: the delay, or a multiple of the server's own time if that is longer."""
    adaptive = min(etiquette.response_factor * response_seconds, etiquette.max_delay_seconds)
    return max(etiquette.delay_seconds, adaptive, crawl_delay)
