"""Takes the orders of homes: checks what a home wrote, begins visits, opens streams, reports, kills.

The service loads this with the first order: it brings the runtime, which a greeting does not need.
"""

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, aclosing
from pathlib import Path

import msgspec

from sterna.crawler.compiler import check_crawler
from sterna.crawler.text_tests import MAX_PROGRAM, compiled
from sterna.errors import Refused, UsageError
from sterna.host.config import HostConfig
from sterna.host.files import lock
from sterna.host.owner.control import Closure
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.load import LoadMeter
from sterna.host.policy.permission import why_not_permitted
from sterna.host.policy.terms import Terms, check_open, granted, rationed
from sterna.host.premises import Premises
from sterna.host.state import VISITS, Session
from sterna.host.visiting.holdings import held_in
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.overseer import Overseer
from sterna.host.visiting.room import RETRY_SECONDS, Streams
from sterna.host.visiting.visits import Visits
from sterna.host.visiting.workshop import Workshop
from sterna.model import Budget, Crawler, Etiquette, Known, Robots, Target, Usage, Visit
from sterna.runtime.cell.jail import protection
from sterna.version import __version__
from sterna.web.urls import Canonical, site_of
from sterna.wire.handshake import SessionKeys
from sterna.wire.holdings import MAX_HOLDINGS_BYTES, seal_holdings
from sterna.wire.keys import PublicKey
from sterna.wire.known import unpack_known
from sterna.wire.orders import Acknowledgement, Kill, Look, Order, Query, Resume, Send, seal_report
from sterna.wire.problems import refusal_of
from sterna.wire.records import MAX_PRIORITY
from sterna.wire.stream import StreamWriter

MAX_STARTS = 500_000
MAX_LIST = 100  # patterns, subtrees, parameters, selectors, files of rules
MAX_TEXT = 2_000  # characters of one of them
MAX_SITES = 10_000
MAX_FACTS = 1_000_000
MAX_FACTS_BYTES = 32 * 1024 * 1024
MAX_NAME = 100
MAX_STEPS = 1_000_000  # of depth, hops, attempts
MAX_TIME = 1e12  # of a URL that waits, in seconds
MAX_MARK_BYTES = 24  # that a known URL takes, with digest and likeness

_LIVE = "live-"
LIVE_LOCK = "lock"  # in the folder of a process that keeps no visits, as long as it lives
_canonical = Canonical(())

_log = logging.getLogger(__name__)


class Reception:
    """Carries out the orders of authenticated homes; created inside a running loop."""

    def __init__(
        self, premises: Premises, workshop: Workshop, *, meter: LoadMeter, receipts: Receipts
    ) -> None:
        self._premises = premises
        self._workshop = workshop
        state = premises.config.state
        folder = state / VISITS
        self._lock: int | None = None  # shows other processes that the folder of this one is in use
        if premises.is_live_only:
            _sweep_live(state)
            # The number of a process alone is not unique: containers may share the folder of state.
            folder = state / f"{_LIVE}{os.getpid()}-{secrets.token_hex(4)}"
            self._lock = lock(folder / LIVE_LOCK)
        self.visits = Visits(premises, workshop, folder=folder, receipts=receipts)
        self._overseeing = asyncio.create_task(Overseer(premises, self.visits, meter).run())
        self._has_jail: bool | None = None  # set by _can_jail(); None: not tried yet
        self._streams = Streams(lambda: premises.limits)

    async def take(
        self, order: Order, *, session: Session, keys: SessionKeys, terms: Terms
    ) -> bytes | AsyncIterator[bytes]:
        """Carries out an order; the answer is a stream for Send and Resume, otherwise one message."""
        if isinstance(order, Send):
            self._streams.check(session.home)
            hosted = await self._begin(order, session=session, terms=terms)
            return self._stream(hosted, 1, order.level, session=session, keys=keys)
        if self._premises.is_live_only:
            raise Refused("gone", "this host keeps no visits: each ends with its stream")
        hosted = self.visits.find(session.home, order.visit)
        if isinstance(order, Resume):
            hosted.check_first(order.first)
            self._streams.check(session.home)
            return self._stream(hosted, order.first, order.level, session=session, keys=keys)
        if isinstance(order, Query):
            return await self._query(hosted, keys=keys, terms=terms)
        if isinstance(order, Kill):
            await self.visits.kill(hosted)
        else:
            assert isinstance(order, Look)
        return seal_report(keys, hosted.report())

    async def _query(self, hosted: HostedVisit, *, keys: SessionKeys, terms: Terms) -> bytes:
        if not terms.may_query:
            raise Refused("refused", "the site's owner does not let your home query its crawlers")
        await hosted.is_logged.wait()
        limit = min(self._premises.limits.query_bytes, MAX_HOLDINGS_BYTES // 2)
        _, holdings = await asyncio.to_thread(held_in, hosted.spool.folder, most_bytes=limit)
        answer = await asyncio.to_thread(
            seal_holdings, keys, msgspec.structs.replace(holdings, report=hosted.report())
        )
        counts = {"facts": len(holdings.facts), "parcels": len(holdings.parcels), "bytes": len(answer)}
        self._premises.notes.must("crawler-queried", **hosted.names, **counts)
        return answer

    def acknowledge(self, received: Acknowledgement, *, session: Session) -> None:
        """Deletes the parcels that home has; a host that keeps nothing has nothing to delete."""
        if not self._premises.is_live_only:
            self.visits.find(session.home, received.visit).acknowledge(received.number)

    async def close(self) -> None:
        self._overseeing.cancel()
        await asyncio.wait({self._overseeing})
        await self.visits.close()
        if self._lock is not None:
            os.close(self._lock)
        await self._workshop.aclose()

    async def _begin(self, order: Send, *, session: Session, terms: Terms) -> HostedVisit:
        premises, home = self._premises, PublicKey.parse(session.home)
        if stop := premises.stops.find(home.text, order.crawler.name, now=premises.wall()):
            raise refusal_of(Closure(stop.reason, stop.until).problem)
        left = premises.left(home, terms)
        check_open(terms, left, wall=premises.wall(), keeps=not premises.is_live_only)
        visit = await asyncio.to_thread(
            visit_of, order, config=premises.config_now, terms=terms, grants=session.grants
        )
        visit = msgspec.structs.replace(visit, budget=rationed(visit.budget, left))
        if not await self._can_jail():
            raise Refused("no-jail", "crawlers are refused: this machine has no seccomp")
        with ExitStack() as place:
            if premises.is_live_only:
                place.callback(os.close, take_slot(premises.config.state, premises.limits.crawlers_at_once))
            self.visits.check(visit, home=home, terms=terms)
            await asyncio.to_thread(premises.spend, home, terms, Usage(), visits=1)
            return await self.visits.begin(visit, home=home, terms=terms, place=place.pop_all())

    async def _can_jail(self) -> bool:
        if self._has_jail is None:
            self._has_jail = (await asyncio.to_thread(protection)).has_seccomp
        return self._has_jail

    async def _stream(
        self, hosted: HostedVisit, first: int, level: int, *, session: Session, keys: SessionKeys
    ) -> AsyncIterator[bytes]:
        level = min(level, self._premises.limits.level)
        hosted.account.streams += 1
        with self._streams.open(session.home, level=level) as memory_bytes:
            chunks = hosted.stream(
                StreamWriter(keys.stream, level=level, memory_bytes=memory_bytes),
                first=first,
                frees=self._premises.is_live_only,
                understands=session.understands,
            )
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        hosted.count_sent(len(chunk))
                        yield chunk
            except OSError as error:  # the stream ends as if the line were cut: home tries again later
                _log.error("visit %s: cannot read a parcel: %s", hosted.visit.id, error)
            finally:
                if self._premises.is_live_only:  # the process may live on, as that of a WSGI server does
                    self.visits.drop(hosted)


def _sweep_live(folder: Path) -> None:
    """Deletes what CGI processes left that the web server killed.

    A process that cannot be seen may be one of another container: it holds its lock.
    """
    for path in folder.glob(f"{_LIVE}*"):
        pid = path.name.removeprefix(_LIVE).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            descriptor = lock(path / LIVE_LOCK)
            if descriptor is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)


def take_slot(folder: Path, count: int) -> int:
    """One of the slots that all processes of a host share, until it is closed; Refused if none is free."""
    for number in range(count):
        descriptor = lock(folder / f"place-{number}")
        if descriptor is not None:
            return descriptor
    raise Refused("busy", "the maximum number of crawlers is at work", retry_after=RETRY_SECONDS)


# -- orders ------------------------------------------------------------------------------------------------


def visit_of(order: Send, *, config: HostConfig, terms: Terms, grants: Budget) -> Visit:
    """The visit that an order asks for, within what was granted; Refused or WireError if it is invalid."""
    _check_crawler(order.crawler)
    if why := why_not_permitted(order.crawler, terms):
        raise Refused("refused", why)
    _check_starts(order.starts, config.site)
    _check_size("own facts", (data for _, data in order.state.facts))
    _check_size("memory", (order.state.memory,))
    known = _known(order.known, most=terms.caps.urls)
    policy = config.policy
    return Visit(
        id=order.visit,
        site=config.site,
        part=order.part,
        epoch=order.epoch,
        crawler=order.crawler,
        etiquette=Etiquette(
            # The owner's to say: with a name of its choice a home would pick the rules that apply to it.
            user_agent=f"{terms.robots_name}/{__version__}",
            robots_name=terms.robots_name,
            sender=order.agent.sender,
            delay_seconds=policy.delay_seconds,
            response_factor=0.0,  # the owner sets the pace, whatever the response time is
            connections=policy.connections,
            obey_robots=terms.obey_robots,
            strict_robots=order.agent.strict_robots,
            outside_agent=order.agent.user_agent,
        ),
        starts=order.starts,
        known=known,
        budget=granted(order.budget.lesser(grants), terms.caps),
        robots=Robots(),
        state=order.state,
        may_be_private=True,  # its own site, the only one that has an address here
        within=order.within,
    )


def _check_crawler(crawler: Crawler) -> None:
    scope, program = crawler.scope, crawler.program
    if not 0 < len(crawler.name) <= MAX_NAME:
        raise Refused("refused", f"a crawler's name has 1 to {MAX_NAME} characters")
    selectors = tuple(
        text for each in program.keep.selectors for text in (each.name, each.css, each.attribute)
    )
    expressions = (*scope.include, *scope.exclude)
    for what, texts, most in (
        ("subtrees", scope.subtrees, 3 * MAX_LIST),
        ("drop_params", scope.drop_params, 3 * MAX_LIST),
        ("selectors", selectors, 3 * MAX_LIST),
        ("rules", tuple(source.name for source in program.rules), 3 * MAX_LIST),
        ("seed_sites", scope.seed_sites, MAX_SITES),
        ("include and exclude", expressions, MAX_LIST),
    ):
        if len(texts) > most or any(len(text) > MAX_TEXT for text in texts):
            limit = f"{most:,} entries of {MAX_TEXT:,} characters"
            raise Refused("refused", f"the crawler's {what} exceed {limit}")
    if not 0 <= program.keep.share <= 1 or not 0 <= program.least_change <= 1:
        raise Refused("refused", "a share of a page is a number from 0 to 1")
    _check_size("facts", crawler.facts)
    try:
        # All of them are tried on every URL, in the loop in which all homes are answered.
        if sum(compiled(each).programsize for each in expressions) > MAX_PROGRAM:
            raise Refused("refused", "the crawler's include and exclude are too complex in sum")
        check_crawler(crawler)
    except UsageError as error:
        raise Refused("refused", f"invalid crawler: {error}") from error


def _check_size(what: str, facts: Iterable[bytes]) -> None:
    sizes = [len(fact) for fact in facts]
    if len(sizes) > MAX_FACTS or sum(sizes) > MAX_FACTS_BYTES:
        raise Refused(
            "refused", f"the crawler has more {what} than the host takes: {MAX_FACTS_BYTES:,} bytes"
        )


def _check_starts(starts: tuple[Target, ...], site: str) -> None:
    if len(starts) > MAX_STARTS:
        raise Refused("refused", f"{len(starts):,} start URLs exceed the limit of {MAX_STARTS:,}")
    for target in starts:
        if _canonical(target.url) != target.url or site_of(target.url) != site:
            raise Refused("refused", f"not a canonical URL of {site}: start URL {target.url[:200]}")
        if not all(0 <= number <= MAX_STEPS for number in (target.depth, target.hops, target.attempts)):
            raise Refused("refused", f"depth, hops or attempts out of range: start URL {target.url[:200]}")
        if not (0 <= target.not_before <= MAX_TIME and abs(target.priority) <= MAX_PRIORITY):
            raise Refused("refused", f"time or priority out of range: start URL {target.url[:200]}")


def _known(packed: bytes, *, most: int) -> Known:
    """What home knows of the site, of no more URLs than a visit may hold in memory."""
    too_much = Refused("refused", f"more URLs are known of the site than a visit may hold ({most:,})")
    if len(packed) > most * MAX_MARK_BYTES:
        raise too_much
    known = unpack_known(packed) if packed else Known()
    if len(known.fingerprints) // 8 + len(known.validators) > most:
        raise too_much
    return known
