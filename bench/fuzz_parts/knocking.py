"""A home that is let in and throws whatever it likes at a host: every answer is a good one or a clean no."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from bench.fuzz_parts import host_inputs
from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.spoiling import SITE

from sterna.errors import WireError
from sterna.model import Budget
from sterna.wire.discovery import MEDIA_TYPE
from sterna.wire.handshake import MAX_WELCOME_BYTES, Greeting, Session
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.orders import open_report
from sterna.wire.problems import PROBLEM_TYPE, decode_problem
from sterna.wire.stream import Ending, ProblemCame, StreamReader

TICKET_SECONDS = 50.0  # a little less than a host grants
MAX_VISITS = 20  # names that are remembered, to be asked for again
MAX_STREAM_BYTES = 1 << 30

# What leaves the ticket as it was.
_UNSPENT = frozenset({"malformed", "bad-signature", "too-large", "version"})


@dataclass(frozen=True, slots=True)
class Said:
    """What came back, all of it."""

    status: int
    media_type: str
    body: bytes


Ask = Callable[[Knock], Awaitable[Said]]  # of a host, over HTTP or in the same process


class Unclean(Exception):
    """An answer that no host may give."""


def judged(said: Said) -> str:
    """The answer in one word; Unclean if it is neither success nor a problem that says what is wrong."""
    if said.status == 200:
        return "ok"
    if said.media_type != PROBLEM_TYPE:
        raise Unclean(f"status {said.status} with {said.media_type or 'nothing'}: {said.body[:200]!r}")
    if b'"about:blank"' in said.body and said.status in (404, 405):
        return f"http {said.status}"
    try:
        problem = decode_problem(said.body)
    except WireError as error:
        raise Unclean(f"a problem that home cannot read: {error}: {said.body[:200]!r}") from error
    if problem.status != said.status or problem.name == "internal":
        raise Unclean(f"status {said.status}: {problem.name}: {problem.detail}")
    return problem.name


def followed(said: Said, session: Session) -> str:
    """How a visit or a report ended that was answered under this session; Unclean if it is neither."""
    if said.media_type != MEDIA_TYPE:
        raise Unclean(f"an order answered with {said.media_type}")
    if said.body.startswith(session.keys.session):
        return f"report: {open_report(session.keys, said.body).state}"
    reader = StreamReader(session.keys.stream, max_bytes=MAX_STREAM_BYTES)
    try:
        last = [None, *reader.feed(said.body)][-1]
    except WireError as error:
        raise Unclean(f"a stream that home cannot read: {error}") from error
    if isinstance(last, Ending):
        return f"visit: {last.ended}"
    if isinstance(last, ProblemCame):
        return f"visit: {decode_problem(last.json).name}"
    raise Unclean(f"a stream that ends with {last!r:.100}")


@dataclass
class Knocker:
    """Throws inputs at a host, one after the other, as one home."""

    ask: Ask
    home: Identity
    host: PublicKey
    now: Callable[[], float] = time.time
    answers: Counter[str] = field(default_factory=Counter)
    visits: list[str] = field(default_factory=list)
    _session: Session | None = None
    _opened: float = 0.0

    async def knock(self, kind: str, chance: Random) -> str:
        """Throws one input; Unclean says what was wrong with the answer."""
        if kind.startswith("greeting"):
            knock = GREETINGS[kind](chance, self.home, self.now())
            answer = judged(await self.ask(knock))
        else:
            answer = await self._knock_in_session(kind, chance)
        self.answers[answer] += 1
        return answer

    async def _knock_in_session(self, kind: str, chance: Random) -> str:
        session = await self._session_now()
        knock = SEALED[kind](chance, session, self.visits)
        said = await self.ask(knock)
        answer = judged(said)
        if answer not in _UNSPENT and knock.op == "order":
            self._session = None
        if answer == "ok" and knock.op == "order":
            answer = followed(said, session)
            self.visits = [*self.visits, knock.visit][-MAX_VISITS:] if knock.visit else self.visits
        return answer

    async def _session_now(self) -> Session:
        if self._session is None or self.now() - self._opened > TICKET_SECONDS:
            self._session = await self.greet()
            self._opened = self.now()
        return self._session

    def forget(self) -> None:
        """Greets anew before the next order."""
        self._session = None

    async def greet(self) -> Session:
        """A session; Unclean if a good greeting gets none."""
        greeting = Greeting.begin(self.home, home="ada", audience=SITE, wants=Budget(), now=self.now())
        said = await self.ask(Knock("hello", greeting.body))
        if judged(said) != "ok" or len(said.body) > MAX_WELCOME_BYTES:
            raise Unclean(f"a good greeting was answered with {said.status}: {said.body[:300]!r}")
        return greeting.finish(said.body, self.host)


GREETINGS = {
    "greeting, bytes": host_inputs.greeting_in_bytes,
    "greeting, fields": host_inputs.greeting_in_fields,
    "greeting, garbage": host_inputs.greeting_of_garbage,
}
SEALED = {
    "order, bytes": host_inputs.order_in_bytes,
    "order, fields": host_inputs.order_in_fields,
    "order, garbage": host_inputs.order_of_garbage,
    "order, crawler": host_inputs.order_of_a_crawler,
    "acknowledgement": host_inputs.acknowledgement,
}


def chance_of(seed: int, kind: str, number: int) -> Random:
    """What makes the input of this number, whichever others are made."""
    return Random(f"{seed} {kind} {number}")
