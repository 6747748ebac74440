"""The host's service, whatever carries it: a call comes in, a reply goes out, and nothing breaks it."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna import __version__
from sterna.errors import Refused, WireError
from sterna.host.admission import judge
from sterna.host.config import HostConfig
from sterna.host.policy import AllowedHomes, Terms
from sterna.host.sessions import TICKET_SECONDS, Session, Sessions
from sterna.transport.interface import Call, Op
from sterna.web.clock import Clock
from sterna.wire.discovery import MEDIA_TYPE, OFFER_TYPE, Offer, encode_offer
from sterna.wire.handshake import (
    MAX_HELLO_BYTES,
    SESSION_BYTES,
    TICKET_BYTES,
    SessionKeys,
    read_hello,
    welcome,
)
from sterna.wire.keys import Identity, PublicKey, Succession
from sterna.wire.problems import PROBLEM_TYPE, Problem, encode_problem, problem, problem_of

if TYPE_CHECKING:
    from sterna.host.reception import Reception
    from sterna.host.visits import Announce
    from sterna.host.workshop import Workshop
    from sterna.wire.orders import Order

MAX_SMALL_BYTES = 4 * 1024
SLOWEST_BYTES = 16 * 1024  # a second, in the long run, of a body that comes in
MAX_AGE_SECONDS = 3600
ORDERS_AT_ONCE = 2  # that are unpacked: each may take some hundred megabytes
PLATFORM = {"sterna": __version__, "engine": "clips", "jail": "seccomp"}

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

    def __init__(
        self,
        config: HostConfig,
        *,
        identity: Identity,
        clock: Clock,
        successions: tuple[Succession, ...] = (),
        is_live_only: bool = False,
        announce: "Announce | None" = None,
        workshop: "Workshop | None" = None,
    ) -> None:
        self._config = config
        self._identity = identity
        self._clock = clock
        self._is_live_only = is_live_only
        self._announce = announce or _log.info
        self._workshop = workshop
        self._allowed = AllowedHomes(config.keys, config.policy)
        self._sessions = Sessions(config.state)
        self._offer = encode_offer(_offer(config, identity, successions, is_live_only=is_live_only))
        self._reception: Reception | None = None  # with the first order
        self._read_bytes = 0  # of bodies that come in now; changed by read() alone
        self._opening = asyncio.Semaphore(ORDERS_AT_ONCE)

    async def answer(self, call: Call) -> Reply:
        """The reply to a call; whatever is wrong with it becomes a problem."""
        try:
            return await self._answer(call)
        except (WireError, Refused) as error:
            return refusal(problem_of(error))
        except Exception as error:
            _log.error("a call failed: %s", call.op, exc_info=error)
            return refusal(problem("internal"))

    async def _answer(self, call: Call) -> Reply:
        if call.op == "discover":
            cache = (("Cache-Control", f"max-age={MAX_AGE_SECONDS}"),)
            return Reply(200, OFFER_TYPE, cache, self._offer)
        if call.op == "hello":
            return _reply(self._greet(call.body))
        session = self._sessions.find(call.body[:SESSION_BYTES])
        keys = SessionKeys.decode(session.keys)
        if call.op == "acknowledge":
            if self._reception is None:
                raise Refused("gone", "there is no visit here")
            self._reception.acknowledge(call.body, session=session, keys=keys)
            self._sessions.use(session)
            return _reply(b"")
        return _reply(await self._take_order(call.body, session=session, keys=keys))

    def stop(self) -> None:
        """Asks all visits to end softly; their streams end with them."""
        if self._reception:
            self._reception.stop()

    async def close(self) -> None:
        """Ends whatever is under way."""
        if self._reception:
            await self._reception.close()

    # -- the calls -----------------------------------------------------------------------------------------

    def _greet(self, body: bytes) -> bytes:
        read = read_hello(body)
        now = self._clock.now()
        grants = judge(read.hello, site=self._config.site, terms=self._allowed.terms(read.key), now=now)
        self._sessions.note(read.key.id, read.hello.nonce)
        ticket, id = secrets.token_bytes(TICKET_BYTES), secrets.token_bytes(SESSION_BYTES)
        reply, keys = welcome(
            read,
            self._identity,
            grants=grants,
            platform=PLATFORM,
            ticket=ticket,
            session=id,
            seconds=int(TICKET_SECONDS),
        )
        self._sessions.open(Session(id, read.key.text, keys.encode(), ticket, grants, now))
        return reply

    async def _take_order(
        self, body: bytes, *, session: Session, keys: SessionKeys
    ) -> bytes | AsyncIterator[bytes]:
        """Verified first, then claimed: a tampered copy must not spend the ticket."""
        from sterna.wire.orders import Send, open_order  # noqa: PLC0415 - a greeting does without it

        async with self._opening:
            ticket, order = await asyncio.to_thread(open_order, keys, body)
            terms = self._terms(session)
            self._sessions.claim(session, ticket, now=self._clock.now())
            if isinstance(order, Send):  # it is large until it is either a visit or refused
                return await self._carry_out(order, session=session, keys=keys, terms=terms)
        return await self._carry_out(order, session=session, keys=keys, terms=terms)

    async def _carry_out(
        self, order: "Order", *, session: Session, keys: SessionKeys, terms: Terms
    ) -> bytes | AsyncIterator[bytes]:
        answer = await self._receive().take(order, session=session, keys=keys, terms=terms)
        if isinstance(answer, bytes):  # a report: nothing is acknowledged under this session
            self._sessions.close(session)
        return answer

    def _terms(self, session: Session) -> Terms:
        """As they are now: the owner may have changed his mind since the greeting."""
        terms = self._allowed.terms(PublicKey.parse(session.home))
        if terms is None:
            raise Refused("unknown-home", "the site's owner has not allowed this key")
        return terms

    def _receive(self) -> "Reception":
        # An idle host and a CGI process that only greets do without the runtime, which takes memory and time.
        from sterna.host.reception import Reception  # noqa: PLC0415
        from sterna.host.workshop import Workshop  # noqa: PLC0415

        if self._reception is None:
            self._reception = Reception(
                self._config,
                self._workshop or Workshop(self._config, self._clock),
                identity=self._identity,
                clock=self._clock,
                announce=self._announce,
                is_live_only=self._is_live_only,
            )
        return self._reception

    # -- bodies --------------------------------------------------------------------------------------------

    async def read(self, op: Op, chunks: AsyncIterator[bytes], *, announced: int | None) -> bytes:
        """A call's body; Refused as soon as it is too large, too slow, or of no session.

        No stranger fills the memory: of an order only its first bytes are read unless its session is known.
        """
        most = self._most_bytes(op)
        if announced is not None and announced > most:
            raise Refused("too-large", f"{announced:,} bytes; {most:,} is the most")
        body = bytearray()
        try:
            async for chunk in self._in_time(chunks):
                self._read_bytes += len(chunk)
                body += chunk
                if len(body) > most:
                    raise Refused("too-large", f"more than {most:,} bytes")
                if self._read_bytes > 2 * self._config.limits.order_bytes:
                    raise Refused("busy", "too much comes in at once", retry_after=1)
                if op == "order" and len(body) - len(chunk) < SESSION_BYTES <= len(body):
                    self._sessions.find(bytes(body[:SESSION_BYTES]))
        finally:
            self._read_bytes -= len(body)
        return bytes(body)

    async def _in_time(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        began, received = time.monotonic(), 0
        while True:
            left = began + self._config.limits.body_seconds + received / SLOWEST_BYTES - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise Refused("malformed", "the message did not come in time") from None
            if chunk is None:
                return
            received += len(chunk)
            yield chunk

    def _most_bytes(self, op: Op) -> int:
        if op == "order":
            return self._config.limits.order_bytes
        return {"discover": 0, "hello": MAX_HELLO_BYTES}.get(op, MAX_SMALL_BYTES)


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


def _offer(
    config: HostConfig, identity: Identity, successions: tuple[Succession, ...], *, is_live_only: bool
) -> Offer:
    policy = config.policy
    return Offer(
        site=config.site,
        key=identity.public.text,
        endpoint=config.address,
        sources=("root", "http") if config.root else ("http",),
        platform=PLATFORM,
        policy={
            "pages": policy.budget.pages,
            "seconds": policy.budget.seconds,
            "connections": policy.connections,
            "delay_seconds": policy.delay_seconds,
            "obey_robots": policy.obey_robots,
        },
        is_live_only=is_live_only,
        succession=tuple(each.text for each in successions),
        max_age=MAX_AGE_SECONDS,
    )
