"""The host's service, whatever carries it: a call comes in, a reply goes out, and nothing breaks it."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from sterna.errors import Refused, StorageError, WireError
from sterna.host.config import HostConfig, Policy
from sterna.host.entrance.admission import judge, rationed
from sterna.host.entrance.bodies import Bodies
from sterna.host.entrance.offering import MAX_AGE_SECONDS, offer_of
from sterna.host.entrance.sessions import TICKET_SECONDS, Session, Sessions
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.doors import Doors
from sterna.host.owner.notes import Notes
from sterna.host.policy.policy import PolicyFile
from sterna.host.policy.ration import Ration
from sterna.host.policy.steering import check_open
from sterna.host.policy.terms import AllowedHomes, Terms
from sterna.host.premises import Announce, Premises
from sterna.transport.interface import Call, Op
from sterna.web.clock import Clock
from sterna.wire.discovery import MEDIA_TYPE, OFFER_TYPE, Offer, encode_offer
from sterna.wire.handshake import SESSION_BYTES, TICKET_BYTES, HelloRead, SessionKeys, read_hello, welcome
from sterna.wire.keys import Identity, PublicKey, Succession
from sterna.wire.problems import PROBLEM_TYPE, Problem, encode_problem, problem, problem_of

if TYPE_CHECKING:
    from sterna.host.owner.receipts import Receipts
    from sterna.host.owner.status import HostStatus
    from sterna.host.policy.load import LoadMeter
    from sterna.host.visiting.reception import Reception
    from sterna.host.visiting.workshop import Workshop
    from sterna.model import Budget
    from sterna.wire.orders import Order

ORDERS_AT_ONCE = 2  # that are unpacked: each may take some hundred megabytes
WATCH_SECONDS = 1.0
CLOSED_SECONDS = 3600.0  # after which one may ask again at closed doors

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back; a stream is read to its end, or closed."""

    status: int
    media_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | AsyncIterator[bytes]


class Service:
    """Answers calls; made inside a running loop."""

    def __init__(  # noqa: PLR0913 - each is somebody it works with
        self,
        config: HostConfig,
        *,
        identity: Identity,
        clock: Clock,
        successions: tuple[Succession, ...] = (),
        is_live_only: bool = False,
        announce: Announce | None = None,
        workshop: "Workshop | None" = None,
        receipts: "Receipts | None" = None,
        audit: Audit | None = None,
        doors: Doors | None = None,
        meter: "LoadMeter | None" = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._successions = successions
        self._workshop = workshop
        self._receipts = receipts
        self._meter = meter
        self._sessions = Sessions(config.state)
        refused = config.state / "refused" if is_live_only else None
        self._premises = Premises(
            config=config,
            identity=identity,
            clock=clock,
            wall=wall,
            rules=PolicyFile(config.policy_file, config.policy),
            homes=AllowedHomes(config.keys, config.policy),
            notes=Notes(audit or Audit(config.state / AUDIT, clock=clock), spacing_file=refused),
            doors=doors or Doors(config.state),
            ration=Ration(config.state),
            announce=announce or _log.info,
            is_live_only=is_live_only,
        )
        self._began = wall()
        self._offered: tuple[Policy, Offer, bytes] | None = None  # under which policy, and what
        self._reception: Reception | None = None  # with the first order
        self._bodies = Bodies(self._sessions, lambda: self._premises.limits)
        self._opening = asyncio.Semaphore(ORDERS_AT_ONCE)

    async def read(self, op: Op, chunks: AsyncIterator[bytes], *, announced: int | None) -> bytes:
        """A call's body; Refused as soon as it is too large, too slow, or of no session."""
        return await self._bodies.read(op, chunks, announced=announced)

    async def answer(self, call: Call) -> Reply:
        """The reply to a call; whatever is wrong with it becomes a problem."""
        try:
            return await self._answer(call)
        except (WireError, Refused) as error:
            return refusal(problem_of(error))
        except StorageError as error:
            _log.error("a call failed: %s: %s", call.op, error)
            return refusal(problem("internal", "the host cannot write to its disk"))
        except Exception as error:
            _log.error("a call failed: %s", call.op, exc_info=error)
            return refusal(problem("internal"))

    async def _answer(self, call: Call) -> Reply:
        self._premises.refresh()
        if call.op == "discover":
            cache = (("Cache-Control", f"max-age={MAX_AGE_SECONDS}"),)
            return Reply(200, OFFER_TYPE, cache, self._offer()[1])
        if call.op == "hello":
            return _reply(self._greet(call.body))
        session = self._sessions.find(call.body[:SESSION_BYTES])
        keys = SessionKeys.decode(session.keys)
        if call.op == "acknowledge":
            await self._acknowledge(call.body, session=session, keys=keys)
            return _reply(b"")
        return _reply(await self._take_order(call.body, session=session, keys=keys))

    # -- for the owner -------------------------------------------------------------------------------------

    def status(self) -> "HostStatus":
        """How the host stands."""
        from sterna.host.owner.reporting import status_of  # noqa: PLC0415 - a greeting does without it

        visits = self._reception.visits if self._reception else None
        return status_of(self._premises, visits, self._meter, began=self._began)

    async def stop_visit(self, visit: str) -> bool:
        """Ends the visits under way with this id: softly, and at once if that takes too long."""
        found = self._reception.visits.named(visit) if self._reception else []
        for hosted in found:
            self._premises.notes.note("owner-stopped", **hosted.names)
        if self._reception:
            await asyncio.gather(*map(self._reception.visits.kill, found))
        return bool(found)

    async def stop_all(self) -> int:
        """Ends all visits under way, in the same way; tells how many."""
        if self._reception is None:
            return 0
        count = self._reception.visits.kill_all()
        if count:
            self._premises.notes.note("owner-stopped", count=count)
        await self._reception.visits.wait_for_kills()
        return count

    async def watch(self) -> None:
        """Takes over what the owner changes also while nobody calls; until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._premises.refresh()

    def stop(self) -> None:
        """Asks all visits to end softly; their streams end with them."""
        if self._reception:
            self._reception.visits.stop()

    async def close(self) -> None:
        """Ends whatever is under way."""
        if self._reception:
            await self._reception.close()
        self._premises.notes.flush()

    # -- the calls -----------------------------------------------------------------------------------------

    def _offer(self) -> tuple[Offer, bytes]:
        premises = self._premises
        if self._offered is None or self._offered[0] is not premises.policy:
            config, is_live_only = premises.config_now, premises.is_live_only
            offer = offer_of(config, premises.identity, self._successions, is_live_only=is_live_only)
            self._offered = (premises.policy, offer, encode_offer(offer))
        return self._offered[1:]

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
        )
        self._sessions.open(
            Session(
                id,
                read.key.text,
                keys.encode(),
                ticket,
                grants,
                self._premises.clock.now(),
                read.hello.understands,
                priority,
            )
        )
        return reply

    def _admit(self, read: HelloRead, terms: Terms | None) -> "Budget":
        """What the home is granted; Refused tells why it is nothing."""
        premises = self._premises
        grants = judge(read.hello, site=self._config.site, terms=terms, now=premises.wall())
        assert terms
        self._check_doors()
        if self._reception and self._reception.visits.has_any(read.key.text):
            return grants  # it may have come for what is waiting for it
        premises.notes.check()
        left = premises.left(read.key, terms)
        check_open(terms, left, wall=premises.wall(), keeps=not premises.is_live_only)
        return rationed(grants, left)

    def _check_doors(self) -> None:
        if (reason := self._premises.doors.are_closed()) is not None:
            raise Refused("closed-now", reason, retry_after=CLOSED_SECONDS)

    async def _take_order(
        self, body: bytes, *, session: Session, keys: SessionKeys
    ) -> bytes | AsyncIterator[bytes]:
        """Verified first, then claimed: a tampered copy must not spend the ticket."""
        from sterna.wire.orders import Send, open_order  # noqa: PLC0415 - a greeting does without it

        async with self._opening:
            ticket, order = await asyncio.to_thread(open_order, keys, body)
            self._sessions.claim(session, ticket, now=self._premises.clock.now())
            if isinstance(order, Send):  # it is large until it is either a visit or refused
                return await self._carry_out(order, session=session, keys=keys)
        return await self._carry_out(order, session=session, keys=keys)

    async def _carry_out(
        self, order: "Order", *, session: Session, keys: SessionKeys
    ) -> bytes | AsyncIterator[bytes]:
        try:
            terms = self._terms(session)
            self._check_doors()
            answer = await self._receive().take(order, session=session, keys=keys, terms=terms)
        except Refused as error:
            known = self._premises.terms(session.home)
            self._premises.notes.refusal(error, home=known.name if known else "", key=session.home)
            raise
        if isinstance(answer, bytes):  # a report: nothing is acknowledged under this session
            self._sessions.close(session)
        return answer

    async def _acknowledge(self, body: bytes, *, session: Session, keys: SessionKeys) -> None:
        """Lets go of what home has, and keeps what it signed; of a visit that is not here any more, too."""
        from sterna.wire.orders import open_acknowledgement  # noqa: PLC0415 - a greeting does without it

        said = open_acknowledgement(keys, body)
        try:
            if self._reception:
                self._reception.acknowledge(said, session=session)
            elif not said.receipt:
                raise Refused("gone", "there is no visit here")
        finally:
            if said.receipt:
                home = PublicKey.parse(session.home)
                await asyncio.to_thread(self._receipts_kept().countersign, said.visit, home, said.receipt)
        self._sessions.use(session)

    def _receipts_kept(self) -> "Receipts":
        from sterna.host.owner.receipts import Receipts  # noqa: PLC0415 - a greeting does without them

        if self._receipts is None:
            self._receipts = Receipts(self._config.state, self._premises.identity, wall=self._premises.wall)
        return self._receipts

    def _terms(self, session: Session) -> Terms:
        """As they are now: the owner may have changed his mind since the greeting."""
        terms = self._premises.terms(session.home, priority=session.priority)
        if terms is None or terms.never:
            raise Refused("unknown-home", "the site's owner has not allowed this key")
        return terms

    def _receive(self) -> "Reception":
        # An idle host and a CGI process that only greets do without the runtime, which takes memory and time.
        from sterna.host.visiting.reception import Reception, meter_of  # noqa: PLC0415
        from sterna.host.visiting.workshop import Workshop  # noqa: PLC0415

        if self._reception is None:
            premises = self._premises
            # What is closed is looked up for each visit, whatever it was when the processes began.
            config = msgspec.structs.replace(self._config, policy=Policy())
            self._meter = self._meter or meter_of(premises)
            self._reception = Reception(
                premises,
                self._workshop or Workshop(config, premises.clock),
                meter=self._meter,
                receipts=self._receipts_kept(),
            )
        return self._reception


def refusal(why: Problem) -> Reply:
    """The reply that says no."""
    headers = tuple(field for field in why.headers if field[0] != "Content-Type")
    return Reply(why.status, PROBLEM_TYPE, headers, encode_problem(why))


def nowhere(status: int, title: str) -> Reply:
    """The reply to what is no call at all."""
    return refusal(Problem(type="about:blank", title=title, status=status))


def _reply(body: bytes | AsyncIterator[bytes]) -> Reply:
    # nginx would otherwise wait until it has some kilobytes of a stream.
    headers = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))
    return Reply(200, MEDIA_TYPE, headers, body)
