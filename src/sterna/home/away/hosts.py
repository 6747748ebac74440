"""Discovery of hosts: each site is asked once, the answer is cached, the key pinned on first contact."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from msgspec.structs import replace

from sterna.errors import LineBroken, Refused, WireError
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import HostRow
from sterna.model import Record, RobotsState, Visit
from sterna.transport.interface import Call, Transport, read_whole
from sterna.web.clock import Clock
from sterna.web.robots import Rules
from sterna.web.urls import hostname_of
from sterna.wire.discovery import MAX_OFFER_BYTES, WELL_KNOWN, Offer, announced, decode_offer
from sterna.wire.keys import PublicKey, follows

NONE_SECONDS = 24 * 3600.0  # until a site without a host is asked again
ERROR_SECONDS = 3600.0  # the same after an error or a distrusted offer
CONFIGURED_SECONDS = 60.0  # the same if the user configured the host
LEAST_SECONDS = 300.0  # for which an offer is cached, whatever its max-age
MOST_SECONDS = 7 * 24 * 3600.0
MAX_REASON = 200


class Configured(Record, frozen=True, kw_only=True):
    """The user's settings for a site's host; either may be empty."""

    endpoint: str = ""
    key: str = ""


@dataclass(eq=False, repr=False)
class Hosts:
    """Finds the host of a site; caches answers in the ledger, negative ones too."""

    ledger: LedgerDesk
    transport: Transport
    _: KW_ONLY
    clock: Clock
    configured: Mapping[str, Configured]
    let_private: Callable[[str], None]  # allows a hostname on a private network
    warn: Callable[[str], None]  # called once for each site
    _warned: set[str] = field(default_factory=set)  # sites; changed by _distrust() alone

    async def find(self, visit: Visit) -> Offer | None:
        """The offer of the host at the visit's site; None if it has none, or none to be trusted now."""
        site, now = visit.site, self.clock.now()
        configured = self.configured.get(site, Configured())
        row = await self._row(site)
        if row.failed_until > now:
            return None
        if visit.may_be_private or visit.allow_private:
            self.let_private(hostname_of(site))
        if configured.endpoint:
            self.let_private(hostname_of(configured.endpoint))
        offer = kept_offer(row) if row.until > now else None
        if offer is None and self._is_due(visit, row, configured):
            row, offer = await self._ask(visit, row, configured)
            await self.ledger.do(lambda ledger: ledger.set_host(row))
        # The configuration may have changed since the offer was cached.
        if offer is None or self._distrust(offer, row, configured):
            return None
        return replace(offer, endpoint=configured.endpoint.rstrip("/")) if configured.endpoint else offer

    def let_reach(self, visit: Visit, offer: Offer) -> None:
        """Allows calls to the host of a visit that may be on a private network."""
        if visit.may_be_private or visit.allow_private:
            self.let_private(hostname_of(offer.endpoint))

    async def fail(self, site: str, reason: str, *, seconds: float) -> None:
        """Notes that the host refused, was unreachable or lied: no crawler is sent there for a while."""
        row = await self._row(site)
        failed_until = max(row.failed_until, self.clock.now() + seconds)
        # Discovery is repeated afterwards: the host may have moved, or have another key.
        row = replace(row, failed_until=failed_until, until=0.0, reason=reason[:MAX_REASON])
        await self.ledger.do(lambda ledger: ledger.set_host(row))

    # -- asking ------------------------------------------------------------------------------------------

    def _is_due(self, visit: Visit, row: HostRow, configured: Configured) -> bool:
        """Whether to ask a site without a cached offer: sooner if somebody says that it has a host."""
        now = self.clock.now()
        if row.offer or now >= row.until:
            return True
        age = now - row.checked_at
        if configured != Configured():
            return age >= CONFIGURED_SECONDS
        return age >= ERROR_SECONDS and self._address(visit, configured)[1]

    async def _ask(self, visit: Visit, row: HostRow, configured: Configured) -> tuple[HostRow, Offer | None]:
        """The new row, and the offer if there is one to be trusted."""
        now, site = self.clock.now(), visit.site
        row = replace(row, checked_at=now, offer=b"", reason="")
        address, is_named = self._address(visit, configured)
        if not is_named and _is_closed(visit):
            return _without(row, now + NONE_SECONDS, f"its robots.txt disallows {WELL_KNOWN}"), None
        try:
            async with self.transport.exchange(address, Call("discover")) as answer:
                data, seconds = await read_whole(answer.chunks, most=MAX_OFFER_BYTES), answer.max_age
            offer = decode_offer(data, site)
        except LineBroken as error:
            return _without(row, now + ERROR_SECONDS, str(error)), None
        except Refused as error:
            wait = NONE_SECONDS if error.problem == "http" and not is_named else ERROR_SECONDS
            return _without(row, now + max(wait, error.retry_after or 0.0), str(error)), None
        except WireError as error:  # usually a page that a site serves for every path
            wait = ERROR_SECONDS if is_named else NONE_SECONDS
            return _without(row, now + wait, str(error)), None
        if distrust := self._distrust(offer, row, configured):
            return _without(row, now + ERROR_SECONDS, distrust), None
        keep = min(float(offer.max_age), MOST_SECONDS if seconds is None else seconds)
        until = now + min(max(keep, LEAST_SECONDS), MOST_SECONDS)
        return replace(row, offer=data, key=offer.key, until=until), offer

    def _address(self, visit: Visit, configured: Configured) -> tuple[str, bool]:
        """Where to ask for the document, and whether the configuration or robots.txt names it."""
        if configured.endpoint:
            return configured.endpoint, True
        named = announced(visit.robots.rules)
        # Any other address could belong to somebody else, and the first contact pins a key.
        if named and is_as_safe(visit.site, named):
            return named, True
        return visit.site, False

    # -- trust -------------------------------------------------------------------------------------------

    def _distrust(self, offer: Offer, row: HostRow, configured: Configured) -> str:
        """Why the offer is not trusted, in one line that is also a warning; "" if it is."""
        site, line = offer.site, ""
        pinned = configured.key or row.key
        if pinned and not follows(PublicKey.parse(pinned), offer.public_key, offer.chain):
            line = (
                f"the host of {site} has key {offer.public_key.id}, not the pinned one: crawling the site"
                " from here; if its owner changed the key, set the new one in the configuration"
            )
        elif not configured.endpoint and not is_as_safe(site, offer.endpoint):
            line = (
                f"the host of {site} is at another name, {hostname_of(offer.endpoint)}: crawling the site"
                " from here; if this is intended, set the endpoint in the configuration"
            )
        if line and site not in self._warned:
            self._warned.add(site)
            self.warn(line)
        return line

    async def _row(self, site: str) -> HostRow:
        return await self.ledger.do(lambda ledger: ledger.host_row(site)) or HostRow(site=site)


def kept_offer(row: HostRow) -> Offer | None:
    """The offer in a row; None if there is none, or if an earlier version of Sterna stored it."""
    try:
        return decode_offer(row.offer, row.site) if row.offer else None
    except WireError:
        return None


def _without(row: HostRow, until: float, reason: str) -> HostRow:
    return replace(row, until=until, reason=reason[:MAX_REASON])


def _is_closed(visit: Visit) -> bool:
    robots, etiquette = visit.robots, visit.etiquette
    if not etiquette.obey_robots or robots.state is not RobotsState.QUALIFIED:
        return False
    rules = Rules.parse(robots.rules, etiquette.robots_name, site=visit.site)
    return not rules.may_fetch(visit.site + WELL_KNOWN)


def is_as_safe(site: str, url: str) -> bool:
    """True if the URL has the site's hostname, and HTTPS if the site has."""
    is_as_encrypted = url.startswith("https://") or site.startswith("http://")
    return hostname_of(url) == hostname_of(site) and is_as_encrypted
