"""Which sites have a host: asked once, remembered, and its key pinned on first contact."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from sterna.errors import LineBroken, Refused, WireError
from sterna.home.ledger.desk import LedgerDesk
from sterna.home.ledger.records import HostRow
from sterna.model import Record, RobotsState, Visit
from sterna.transport.interface import Call, Transport, read_whole
from sterna.web.clock import Clock
from sterna.web.robots import Rules
from sterna.web.urls import hostname_of
from sterna.wire.discovery import MAX_OFFER_BYTES, WELL_KNOWN, Offer, announced, decode_offer
from sterna.wire.keys import PublicKey, follows

NONE_SECONDS = 24 * 3600.0  # that a site without a host is not asked again
ERROR_SECONDS = 3600.0  # after an error, or an offer that was not believed
CONFIGURED_SECONDS = 60.0  # the same, where the user named the host
LEAST_SECONDS = 300.0  # that an offer is kept, whatever it says itself
MOST_SECONDS = 7 * 24 * 3600.0
MAX_REASON = 200


class Configured(Record, frozen=True, kw_only=True):
    """What the user says of a site's host; either may be empty."""

    endpoint: str = ""
    key: str = ""


def _ignore(text: str) -> None:
    pass


class Hosts:
    """Finds the host of a site; its answers are kept in the store, negative ones too."""

    def __init__(
        self,
        ledger: LedgerDesk,
        transport: Transport,
        *,
        clock: Clock,
        configured: Mapping[str, Configured] | None = None,
        let_private: Callable[[str], None] = _ignore,  # told a hostname that may be on a private network
        warn: Callable[[str], None] = _ignore,  # told a line, once for each site
    ) -> None:
        self._ledger = ledger
        self._transport = transport
        self._clock = clock
        self._configured = configured or {}
        self._let_private = let_private
        self._warn = warn
        self._warned: set[str] = set()  # sites; changed by _distrust() alone

    async def find(self, visit: Visit) -> Offer | None:
        """The offer of the host at the visit's site; None where there is none, or none to be trusted now."""
        site, now = visit.site, self._clock.now()
        told = self._configured.get(site, Configured())
        row = await self._row(site)
        if row.failed_until > now:
            return None
        if visit.may_be_private or visit.allow_private:
            self._let_private(hostname_of(site))
        if told.endpoint:
            self._let_private(hostname_of(told.endpoint))
        offer = _kept_offer(row) if row.until > now else None
        if offer is None and self._is_due(visit, row, told):
            row, offer = await self._ask(visit, row, told)
            await self._ledger.do(lambda ledger: ledger.set_host(row))
        return self._believed(offer, row, told) if offer else None

    def let_reach(self, visit: Visit, offer: Offer) -> None:
        """Allows calls to the host of a visit that may be on a private network."""
        if visit.may_be_private or visit.allow_private:
            self._let_private(hostname_of(offer.endpoint))

    async def fail(self, site: str, reason: str, *, seconds: float) -> None:
        """Has the site visited from here for a while: its host refused, was not reached, or lied."""
        row = await self._row(site)
        failed_until = max(row.failed_until, self._clock.now() + seconds)
        # It is asked anew afterwards: it may have moved, or have another key.
        row = replace(row, failed_until=failed_until, until=0.0, reason=reason[:MAX_REASON])
        await self._ledger.do(lambda ledger: ledger.set_host(row))

    # -- asking ------------------------------------------------------------------------------------------

    def _is_due(self, visit: Visit, row: HostRow, told: Configured) -> bool:
        """Whether to ask, where no offer is kept: sooner if somebody says that there is a host."""
        age = self._clock.now() - row.checked_at
        if row.offer or self._clock.now() >= row.until:
            return True
        if told != Configured():
            return age >= CONFIGURED_SECONDS
        return age >= ERROR_SECONDS and self._address(visit, told)[1]

    async def _ask(self, visit: Visit, row: HostRow, told: Configured) -> tuple[HostRow, Offer | None]:
        """What is known after asking, and the offer if there is one to be trusted."""
        now, site = self._clock.now(), visit.site
        row = replace(row, checked_at=now, offer=b"", reason="")
        address, is_named = self._address(visit, told)
        if not is_named and _is_closed(visit):
            return replace(row, until=now + NONE_SECONDS, reason="its robots.txt closes the place"), None
        try:
            data, seconds = await self._discover(address)
            offer = decode_offer(data, site)
        except LineBroken as error:
            return _without(row, now + ERROR_SECONDS, str(error)), None
        except Refused as error:
            wait = NONE_SECONDS if error.problem == "http" and not is_named else ERROR_SECONDS
            return _without(row, now + max(wait, error.retry_after or 0.0), str(error)), None
        except WireError as error:  # as a rule a page that a site gives for every path
            wait = ERROR_SECONDS if is_named else NONE_SECONDS
            return _without(row, now + wait, str(error)), None
        distrust = self._distrust(offer, row, told)
        if distrust:
            return _without(row, now + ERROR_SECONDS, distrust), None
        keep = min(float(offer.max_age), MOST_SECONDS if seconds is None else seconds)
        until = now + min(max(keep, LEAST_SECONDS), MOST_SECONDS)
        return replace(row, offer=data, key=offer.key, until=until), offer

    async def _discover(self, address: str) -> tuple[bytes, float | None]:
        async with self._transport.exchange(address, Call("discover")) as answer:
            return await read_whole(answer.chunks, most=MAX_OFFER_BYTES), answer.max_age

    def _address(self, visit: Visit, told: Configured) -> tuple[str, bool]:
        """Where the document is asked for, and whether anybody said that there is one."""
        if told.endpoint:
            return told.endpoint, True
        named = announced(visit.robots.rules)
        # Anything else could send home's first question, by which a key is pinned, to somebody else.
        if named and _is_as_safe(visit.site, named):
            return named, True
        return visit.site, False

    # -- trust -------------------------------------------------------------------------------------------

    def _distrust(self, offer: Offer, row: HostRow, told: Configured) -> str:
        """Why the offer is not believed, in one line that is also a warning; "" if it is."""
        site, line = offer.site, ""
        pinned = told.key or row.key
        if pinned and not follows(PublicKey.parse(pinned), offer.public_key, offer.chain):
            line = (
                f"the host of {site} has the key {offer.public_key.id}, and not the one that is known of it:"
                " visited from here; if its owner changed the key, name the new one in the configuration"
            )
        elif not told.endpoint and not _is_as_safe(site, offer.endpoint):
            line = (
                f"the host of {site} sends crawlers to {hostname_of(offer.endpoint)}: visited from here;"
                " if that is right, name the endpoint in the configuration"
            )
        if line and site not in self._warned:
            self._warned.add(site)
            self._warn(line)
        return line

    def _believed(self, offer: Offer, row: HostRow, told: Configured) -> Offer | None:
        """The offer as it is to be used; None if the configuration says otherwise than when it was kept."""
        if self._distrust(offer, row, told):
            return None
        return replace(offer, endpoint=told.endpoint.rstrip("/")) if told.endpoint else offer

    async def _row(self, site: str) -> HostRow:
        return await self._ledger.do(lambda ledger: ledger.host_row(site)) or HostRow(site=site)


def _kept_offer(row: HostRow) -> Offer | None:
    try:
        return decode_offer(row.offer, row.site) if row.offer else None
    except WireError:
        return None  # an earlier version kept it: it is asked for again


def _without(row: HostRow, until: float, reason: str) -> HostRow:
    return replace(row, until=until, reason=reason[:MAX_REASON])


def _is_closed(visit: Visit) -> bool:
    robots, etiquette = visit.robots, visit.etiquette
    if not etiquette.obey_robots or robots.state is not RobotsState.QUALIFIED:
        return False
    return not Rules.parse(robots.rules, agent=etiquette.robots_name).may_fetch(visit.site + WELL_KNOWN)


def _is_as_safe(site: str, url: str) -> bool:
    """True if the URL is on the site's own machine, and not in the clear where the site is not."""
    is_secret = url.startswith("https://") or site.startswith("http://")
    return hostname_of(url) == hostname_of(site) and is_secret
