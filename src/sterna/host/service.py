"""The host's service, independent of its transport: takes a call, returns a reply, and never fails."""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec

from sterna.errors import Refused, SternaError, StorageError, WireError
from sterna.host.calls import Bodies, HostRequest, Reply, Shown, op_of, refusal
from sterna.host.config import HostConfig
from sterna.host.owner.audit import AUDIT, Audit, Notes
from sterna.host.owner.control import Closure, Doors
from sterna.host.policy.policy import Policy, PolicyFile
from sterna.host.policy.terms import AllowedHomes, Terms, admit, check_open, check_welcome, rationed
from sterna.host.premises import Announce, Commons, Premises
from sterna.host.state import (
    OWN_INDEX,
    TICKET_SECONDS,
    VISITS,
    Rations,
    Session,
    Sessions,
    Stop,
    Stops,
    may_note_refusal,
    open_state,
)
from sterna.transport.interface import Call
from sterna.version import __version__
from sterna.web.clock import Clock
from sterna.web.closed import merged
from sterna.wire.discovery import MEDIA_TYPE, OFFER_TYPE, Offer, encode_offer
from sterna.wire.handshake import (
    MAX_PATH,
    MAX_PATHS,
    SESSION_BYTES,
    TICKET_BYTES,
    HelloRead,
    SessionKeys,
    read_hello,
    welcome,
)
from sterna.wire.keys import Identity, PublicKey, Succession
from sterna.wire.problems import problem, problem_of, refusal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sterna.host.own.shelf import Shelf
    from sterna.host.owner.receipts import Receipts
    from sterna.host.owner.status import HostStatus, VisitStatus
    from sterna.host.policy.load import LoadMeter
    from sterna.host.visiting.reception import Reception
    from sterna.host.visiting.workshop import Workshop
    from sterna.model import Budget
    from sterna.wire.orders import Order

WATCH_SECONDS = 1.0
OFFER_SECONDS = 3600  # that homes may cache the offer

_log = logging.getLogger(__name__)


class Service:
    """Answers calls; created inside a running loop.

    Most of a host is imported with the first order: an idle host and a CGI process that only greets need no
    runtime, which takes memory and time.
    """

    def __init__(  # noqa: PLR0913 - each is a collaborator that tests replace
        self,
        config: HostConfig,
        *,
        identity: Identity,
        clock: Clock,
        successions: tuple[Succession, ...] = (),
        is_live_only: bool = False,
        announce: Announce | None = None,
        workshop: "Workshop | None" = None,
        audit: Audit | None = None,
        doors: Doors | None = None,
        meter: "LoadMeter | None" = None,
        wall: Callable[[], float] = time.time,
        commons: Commons | None = None,
    ) -> None:
        if not is_live_only:
            _refuse_other_site(config)
        self._config = config
        self._successions = successions
        self._workshop = workshop
        self._meter = meter
        self._state = state = open_state(config.state)
        self._sessions = Sessions(state)
        may_note = (lambda: may_note_refusal(state, now=time.time())) if is_live_only else None
        self._premises = Premises(
            config=config,
            identity=identity,
            clock=clock,
            wall=wall,
            rules=PolicyFile(config.policy_file, config.policy),
            homes=AllowedHomes(config.keys, config.policy),
            notes=Notes(audit or Audit(config.state / AUDIT, clock=clock), may_note_refusal=may_note),
            doors=doors or Doors(config.state),
            rations=Rations(state),
            stops=Stops(state),
            announce=announce or _log.info,
            commons=commons or Commons(),
            is_live_only=is_live_only,
        )
        self.config = config
        self._began = wall()
        self.bodies = Bodies(self._sessions, lambda: self._premises.limits)
        self._dismissed: set[str] = set()  # keys of homes; changed by _dismiss() alone
        self._offered: tuple[Policy, Offer, bytes] | None = None  # by _offer(): for which policy, and what
        # Created when first needed.
        self._reception: Reception | None = None
        self._receipts: Receipts | None = None
        self._shelf: Shelf | None = None

    async def restore(self) -> None:
        """Goes on with the visits that an earlier process left; to be called before any call is answered.

        StorageError if they cannot be listed: the host must not begin others in their place.
        """
        folder = self._config.state / VISITS
        if not self._premises.is_live_only and folder.is_dir():
            from sterna.host.visiting.leftovers import clear_aside, visits_left  # noqa: PLC0415

            await asyncio.to_thread(clear_aside, self._config.state)
            if await asyncio.to_thread(visits_left, folder):
                await self._receive().visits.restore()
        await self._dismiss()

    async def respond(self, request: HostRequest) -> Reply:
        """The response to an HTTP request; an invalid one gets a problem."""
        op = op_of(request.method, request.path, endpoint=self._config.address)
        if isinstance(op, Reply):
            return op
        if isinstance(op, Shown):
            from sterna.host.own.shelf import Shelf  # noqa: PLC0415

            self._shelf = self._shelf or Shelf(self._config)
            return await self._shelf.reply(op.name, known=request.if_none_match)
        try:
            body = await self.bodies.read(op, request.body, announced=request.announced)
        except Refused as error:
            return refusal(problem_of(error))
        return await self.answer(Call(op, body))

    async def answer(self, call: Call) -> Reply:
        """The reply to a call; an invalid one gets a problem."""
        try:
            return await self._answer(call)
        except (WireError, Refused) as error:
            return refusal(problem_of(error))
        except StorageError as error:
            _log.error("call %s failed: %s", call.op, error)
            return refusal(problem("internal", "the host cannot write to its disk"))
        except Exception as error:
            _log.error("call %s failed", call.op, exc_info=error)
            return refusal(problem("internal"))

    async def _answer(self, call: Call) -> Reply:
        self._premises.refresh()
        if call.op == "discover":
            cache = (("Cache-Control", f"max-age={OFFER_SECONDS}"),)
            return Reply(200, OFFER_TYPE, cache, self._offer()[1])
        if call.op == "hello":
            return _reply(self._greet(call.body))
        session = self._sessions.find(call.body[:SESSION_BYTES])
        if (terms := self._premises.terms(session.home)) and terms.is_revoked:
            check_welcome(terms)
        keys = SessionKeys.decode(session.keys)
        if call.op == "acknowledge":
            await self._acknowledge(call.body, session=session, keys=keys)
            return _reply(b"")
        return _reply(await self._take_order(call.body, session=session, keys=keys))

    # -- for the owner -------------------------------------------------------------------------------------

    def status(self) -> "HostStatus":
        from sterna.host.owner.status import HostStatus  # noqa: PLC0415
        from sterna.host.policy.load import family_of, memory_bytes  # noqa: PLC0415

        premises, visits = self._premises, self._reception and self._reception.visits
        here = visits.under_way() if visits else []
        reasons = {hosted.paused for hosted in here}
        return HostStatus(
            site=self._config.site,
            version=__version__,
            began=self._began,
            now=premises.wall(),
            pid=os.getpid(),
            doors=closure.reason if (closure := premises.doors.closure()) else "",
            load=str(self._meter.load) if self._meter and here else "",
            paused=reasons.pop() if len(reasons) == 1 else "",
            visits=tuple(hosted.status() for hosted in visits.all()) if visits else (),
            queue=sum(hosted.state == "queued" for hosted in here),
            most_queue=premises.limits.queue,
            crawlers=sum(hosted.state == "running" for hosted in here),
            most_crawlers=premises.limits.crawlers_at_once,
            kept_bytes=visits.kept_bytes if visits else 0,
            most_kept_bytes=premises.limits.kept_bytes_total,
            memory_bytes=sum(map(memory_bytes, family_of(os.getpid()))),
            stops=tuple(premises.stops.all(now=premises.wall())),
        )

    async def stop_visits(
        self, wanted: "Sequence[VisitStatus]", closure: Closure
    ) -> "tuple[VisitStatus, ...]":
        """Stops these visits, by force if they take too long; returns those that were still under way.

        Their homes are told why, and no crawler of the same home and name is taken until the time is over.
        StorageError, after they are stopped, if that cannot be stored.
        """
        if self._reception is None:
            return ()
        visits = self._reception.visits
        here = {(hosted.home, hosted.visit.id): hosted for hosted in visits.under_way()}
        found = {each: here[each.home, each.visit] for each in wanted if (each.home, each.visit) in here}
        fault = ""
        for each, hosted in found.items():
            try:  # before the kill, after which a home may send the crawler again at once
                self._premises.stops.add(Stop(each.home, each.crawler, closure.reason, closure.until))
            except StorageError as error:
                advice = "sterna host stop --all closes the host"
                fault = f"crawler {each.crawler!r} is stopped, but may come again ({advice}): {error}"
            self._premises.notes.note("owner-stopped", **hosted.names, why=closure.reason)
        await asyncio.gather(*(visits.kill(hosted, stopped=closure.problem) for hosted in found.values()))
        if fault:
            raise StorageError(fault)
        return tuple(found)

    async def stop_all(self) -> int:
        """Stops all visits under way in the same manner; returns their number."""
        if self._reception is None:
            return 0
        closure = self._premises.doors.closure()
        count = self._reception.visits.kill_all(closure.problem if closure else None)
        if count:
            self._premises.notes.note("owner-stopped", count=count)
        await self._reception.visits.wait_for_kills()
        return count

    async def watch(self) -> None:
        """Takes over changes of the policy between calls; runs until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._premises.refresh()
            try:
                await self._dismiss()
            except SternaError as error:
                _log.error("cannot end the visits of revoked homes: %s", error)

    async def _dismiss(self) -> None:
        """Ends sessions and visits of homes whose keys were revoked since the last call."""
        revoked = self._premises.homes.revoked()
        self._dismissed &= revoked.keys()  # one that is allowed again can be revoked again
        if not (new := revoked.keys() - self._dismissed):
            return
        self._dismissed |= new
        sessions = self._sessions.end(new)
        for key in new:
            home, visits = revoked[key], 0
            if self._reception:
                dismiss = self._reception.visits.dismiss
                visits = await dismiss(key, keeps_parcels=home.keeps_parcels)
            if visits or sessions:
                self._premises.notes.note("home-revoked", home=home.name, key=key, visits=visits)

    def stop(self) -> None:
        """Asks all visits to pause until the next start; their streams end with them."""
        if self._reception:
            self._reception.visits.stop()

    async def close(self) -> None:
        if self._reception:
            await self._reception.close()
        self._premises.notes.flush()
        self._state.close()

    # -- the calls -----------------------------------------------------------------------------------------

    def _offer(self) -> tuple[Offer, bytes]:
        premises = self._premises
        has_index = (self._config.state / OWN_INDEX).exists()  # the owner may make one, or delete it
        offered = self._offered
        if offered is None or offered[0] is not premises.policy or offered[1].lists_pages != has_index:
            config, is_live_only = premises.config_now, premises.is_live_only
            offer = offer_of(config, premises.identity, self._successions, is_live_only=is_live_only)
            offer = msgspec.structs.replace(offer, lists_pages=has_index)
            self._offered = offered = (premises.policy, offer, encode_offer(offer))
        return offered[1:]

    def _greet(self, body: bytes) -> bytes:
        read = read_hello(body)
        terms = self._premises.terms(read.key.text, priority=read.hello.priority)
        try:
            grants = self._admit(read, terms)
        except Refused as error:
            self._premises.notes.refusal(error, home=terms.name if terms else "", key=read.key.text)
            raise
        self._sessions.note(read.key.id, read.hello.nonce)
        ticket, id = secrets.token_bytes(TICKET_BYTES), secrets.token_bytes(SESSION_BYTES)
        priority = terms.priority if terms else 0
        reply, keys = welcome(
            read,
            self._premises.identity,
            grants=grants,
            platform=self._offer()[0].platform,
            ticket=ticket,
            session=id,
            seconds=int(TICKET_SECONDS),
            priority=priority,
            closed=merged(terms.closed, max_count=MAX_PATHS, max_bytes=MAX_PATH) if terms else (),
        )
        now, understands = self._premises.clock.now(), read.hello.understands
        self._sessions.open(
            Session(id, read.key.text, keys.encode(), ticket, grants, now, understands, priority)
        )
        return reply

    def _admit(self, read: HelloRead, terms: Terms | None) -> "Budget":
        """What the home is granted; Refused if it may not come."""
        premises = self._premises
        grants = admit(read.hello, site=self._config.site, terms=terms, now=premises.wall())
        assert terms
        self._check_doors()
        if self._reception and self._reception.visits.has_any(read.key.text):
            return grants  # it may have come to fetch its parcels
        premises.notes.check()
        left = premises.left(read.key, terms)
        check_open(terms, left, wall=premises.wall(), keeps=not premises.is_live_only)
        return rationed(grants, left)

    def _check_doors(self) -> None:
        if closure := self._premises.doors.closure():
            raise refusal_of(closure.problem)

    async def _take_order(
        self, body: bytes, *, session: Session, keys: SessionKeys
    ) -> bytes | AsyncIterator[bytes]:
        """Verifies the order before it claims the ticket: a tampered copy must not spend it."""
        from sterna.wire.orders import Query, Send, open_order  # noqa: PLC0415

        async with self._premises.commons.opening:
            ticket, order = await asyncio.to_thread(open_order, keys, body)
            self._sessions.claim(session, ticket, now=self._premises.clock.now())
            # Both take much memory: until the visit is taken or refused, while its log is read.
            if isinstance(order, Send | Query):
                return await self._carry_out(order, session=session, keys=keys)
        return await self._carry_out(order, session=session, keys=keys)

    async def _carry_out(
        self, order: "Order", *, session: Session, keys: SessionKeys
    ) -> bytes | AsyncIterator[bytes]:
        # The owner may have changed the terms since the greeting.
        terms = self._premises.terms(session.home, priority=session.priority)
        try:
            if terms is None or terms.never:
                raise Refused("unknown-home", "the site's owner has not allowed this key")
            self._check_doors()
            answer = await self._receive().take(order, session=session, keys=keys, terms=terms)
        except Refused as error:
            self._premises.notes.refusal(error, home=terms.name if terms else "", key=session.home)
            raise
        if isinstance(answer, bytes):  # a report: nothing is acknowledged under this session
            self._sessions.close(session)
        return answer

    async def _acknowledge(self, body: bytes, *, session: Session, keys: SessionKeys) -> None:
        """Deletes parcels that home has, and keeps its signature, even of a visit that is no longer here."""
        from sterna.wire.orders import open_acknowledgement  # noqa: PLC0415

        received = open_acknowledgement(keys, body)
        try:
            if self._reception:
                self._reception.acknowledge(received, session=session)
            elif not received.receipt:
                raise Refused("gone", "this host has no visits")
        finally:
            if received.receipt:
                home = PublicKey.parse(session.home)
                countersign = self._kept_receipts().countersign
                await asyncio.to_thread(countersign, received.visit, home, received.receipt)
        self._sessions.use(session)

    # -- what is created when first needed -----------------------------------------------------------------

    def _kept_receipts(self) -> "Receipts":
        from sterna.host.owner.receipts import Receipts  # noqa: PLC0415

        if self._receipts is None:
            self._receipts = Receipts(self._state, self._premises.identity, wall=self._premises.wall)
        return self._receipts

    def _receive(self) -> "Reception":
        from sterna.host.policy.load import meter_of  # noqa: PLC0415
        from sterna.host.visiting.reception import Reception  # noqa: PLC0415
        from sterna.host.visiting.workshop import Workshop  # noqa: PLC0415

        if self._reception is None:
            premises = self._premises
            # Closed paths are looked up for each visit, whatever they were when the processes started.
            config = msgspec.structs.replace(self._config, policy=Policy())
            self._meter = self._meter or meter_of(premises.config, premises.rules)
            self._reception = Reception(
                premises,
                self._workshop or Workshop(config, premises.clock),
                meter=self._meter,
                receipts=self._kept_receipts(),
            )
        return self._reception


def offer_of(
    config: HostConfig, identity: Identity, successions: tuple[Succession, ...], *, is_live_only: bool
) -> Offer:
    """The offer by which homes find this host: its key, its endpoint, and the public part of its policy."""
    policy = config.policy
    return Offer(
        site=config.site,
        key=identity.public.text,
        endpoint=config.address,
        sources=("root", "http") if config.root else ("http",),
        platform=_platform_of(config, is_live_only=is_live_only),
        policy={
            "pages": policy.budget.pages,
            "seconds": policy.budget.seconds,
            "connections": policy.connections,
            "delay_seconds": policy.delay_seconds,
            "obey_robots": policy.obey_robots,
            **({"hours": policy.hours, "zone": policy.zone} if policy.hours else {}),
        },
        is_live_only=is_live_only,
        succession=tuple(each.text for each in successions),
        max_age=OFFER_SECONDS,
    )


def _refuse_other_site(config: HostConfig) -> None:
    """UsageError if the folder of state keeps visits of another site."""
    folder = config.state / VISITS
    if folder.is_dir():
        from sterna.host.visiting.leftovers import refuse_other_site  # noqa: PLC0415

        refuse_other_site(folder, config.site)


def _platform_of(config: HostConfig, *, is_live_only: bool) -> dict[str, str]:
    """Facts about this host by which a home shapes the crawler that it sends (Crawlets 6)."""
    from sterna.runtime.cell.seccomp import why_not  # noqa: PLC0415 - without the rest of the runtime

    facts = {
        "sterna": __version__,
        "engine": "clips",
        "jail": "none" if why_not() else "seccomp",
        "level": str(config.limits.level),
        "readers": str(config.limits.readers),
        "sources": "root http" if config.root else "http",
        "live-only": "yes" if is_live_only else "no",
        "queries": "no" if is_live_only else "yes",
    }
    if config.policy.budget.memory_bytes:
        facts["memory_bytes"] = str(config.policy.budget.memory_bytes)
    return facts


def _reply(body: bytes | AsyncIterator[bytes]) -> Reply:
    # Without the second header nginx would buffer some kilobytes of a stream.
    headers = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))
    return Reply(200, MEDIA_TYPE, headers, body)
