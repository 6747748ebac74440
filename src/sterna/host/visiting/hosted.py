"""One visit at a host: how far it has come, and the stream by which its home follows it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from sterna.errors import Refused
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.load import Governor
from sterna.host.receipts.account import Account
from sterna.host.visiting.places import Place
from sterna.host.visiting.spool import Spool
from sterna.model import Ended, Known, Parcel, State, Usage, Visit
from sterna.runtime.reins import Reins
from sterna.web.clock import Clock
from sterna.wire.known import Marks
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Report, VisitState
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.problems import Problem, encode_problem, problem
from sterna.wire.stream import Ending, Sign, StreamWriter

ALIVE_SECONDS = 10.0
SAY_PAUSED_SECONDS = 60.0  # so that a home that waits knows that it is not forgotten
PAUSED = "paused:"  # how a line begins that says why a visit rests; its home is patient then
RESUMED = "resumed: it goes on"
MAX_LINES = 1_000  # of log that nobody has read yet


class HostedVisit:
    """A visit, its parcels and its state; changed in the loop's thread only."""

    def __init__(
        self,
        visit: Visit,
        *,
        home: str,
        spool: Spool,
        clock: Clock,
        name: str = "",
        receipts: Receipts | None = None,
        place: Place,
        governor: Governor,
    ) -> None:
        self.visit = visit
        self.home = home  # the key of the home that sent it
        self.name = name  # what the owner calls it
        self.place = place
        self.governor = governor
        self.reins = Reins(clock)
        self._rested_before = 0.0  # it began
        self.paused = ""  # why it rests, as its home is told; "": it does not
        self.is_deferred = False  # it had to wait for its hours, and its home need not have waited with it
        self.since = clock.now()
        self.account = Account(visit, home=home, name=name, receipts=receipts)
        self.spool = spool
        self.state: VisitState = "queued"
        self.ended: Ended | None = None
        self.ending: Ending | None = None  # what the stream ends with, if all went well
        self.problem: Problem | None = None  # or if not
        self.stop = asyncio.Event()
        self.is_killed = False  # its home asked for its end
        self.usage = Usage()
        self.pages = 0
        self._clock = clock
        self.heard = clock.now()  # of its home, for the last time
        self._marks = Marks(visit.known)
        self._tree = Tree()
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._news = asyncio.Event()
        self._stream: object = None  # the one that may read

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "queued", "running")

    @property
    def names(self) -> dict[str, str]:
        """By what it is known in the audit log."""
        crawler = self.visit.crawler.name
        return {"visit": self.visit.id, "home": self.name, "key": self.home, "crawler": crawler}

    @property
    def rested_seconds(self) -> float:
        """How long it was made to rest since it began."""
        return self.reins.paused_seconds - self._rested_before if self.state == "running" else 0.0

    # -- what the visit does -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Its work begins."""
        self.state = "running"
        self._rested_before = self.reins.paused_seconds
        self.account.begin()

    async def pack(self, parcel: Parcel) -> bytes:
        """The parcel as it travels; its pages count from now on."""
        return await asyncio.to_thread(self._pack, parcel)

    def _pack(self, parcel: Parcel) -> bytes:
        # Parcels come one after the other, so that no two threads are here at once.
        sent = as_sent(parcel, self._marks)
        packed = pack_parcel(sent, self._marks)
        for page in sent.pages:
            self._tree.add(leaf_of(page))
        return packed

    async def keep(self, parcel: Parcel, packed: bytes) -> None:
        """Puts the packed parcel where its home can have it."""
        await self.spool.put(parcel.number, packed)
        self.pages += parcel.usage.pages
        self.usage = self.usage.plus(parcel.usage)
        self.ended = parcel.ended
        self._news.set()

    def log(self, line: str) -> None:
        """A line of the rules, for whoever watches."""
        self._lines.append(line)
        self._news.set()

    def rest(self, why: str) -> None:
        """It makes no requests from now on, and its home hears why."""
        self.reins.pause()
        if self.paused != why:  # else whoever waits for news would have no time for signs of life
            self.paused = why
            self._news.set()

    def go_on(self) -> None:
        """Ends its rest."""
        self.reins.go_on()
        self.paused = ""
        self._news.set()

    def finish(self, sign: Sign) -> None:
        """All parcels are there."""
        assert self.ended
        self.ending = Ending(
            visit=self.visit.id,
            parcels=self.spool.last,
            pages=self._tree.count,
            usage=self.usage,
            ended=self.ended,
            root=self._tree.root(),
        ).signed(sign)
        self._settle("killed" if self.is_killed else "finished")

    def fail(self, why: Problem, state: VisitState = "killed") -> None:
        """It ends before its end; the parcels that are there are good all the same."""
        if not self.is_over:
            self.problem = why
            self._settle(state)

    def _settle(self, state: VisitState) -> None:
        self.state = state
        self.paused = ""
        self.account.end(self.usage, self.ended, root=self._tree.root())
        # What is kept until its home has asked for it must not hold all that the visit knew.
        empty = Known()
        self.visit = msgspec.structs.replace(self.visit, starts=(), known=empty, state=State())
        self._marks = Marks(empty)
        self.heard = self._clock.now()
        self._news.set()

    # -- what its home does --------------------------------------------------------------------------------

    def hear(self) -> None:
        """Its home gave a sign of life."""
        self.heard = self._clock.now()

    def acknowledge(self, number: int) -> None:
        """Its home has the parcels up to this one for good."""
        self.account.calls += 1
        self.hear()
        self.spool.acknowledge(number)

    def report(self) -> Report:
        """How it stands."""
        self.account.calls += 2  # a greeting came before the question
        return Report(
            visit=self.visit.id,
            state=self.state,
            parcels=self.spool.last,
            acknowledged=self.spool.acknowledged,
            kept_bytes=self.spool.kept_bytes,
            ended=self.ended,
        )

    def check_first(self, first: int) -> None:
        """Refused if a stream cannot begin with this parcel."""
        if not 1 <= first <= self.spool.last + 1:
            raise Refused("malformed", f"there is no parcel {first}: {self.spool.last} were made so far")
        if first <= self.spool.acknowledged:
            raise Refused("gone", f"the parcels up to {self.spool.acknowledged} were acknowledged")

    async def stream(
        self,
        key: bytes,
        *,
        first: int,
        level: int,
        memory_bytes: int = 0,
        frees: bool = False,
        takes_receipt: bool = False,
    ) -> AsyncIterator[bytes]:
        """The parcels from `first` on and whatever comes after them; ends any stream that was before it.

        With `frees` a parcel is forgotten as soon as it is written: for a host that keeps nothing.
        With `takes_receipt` the visit's receipt comes before its end. It compresses in so many bytes.
        """
        writer = StreamWriter(key, level=level, memory_bytes=memory_bytes)
        chunks = self._chunks(writer, first=first, frees=frees, takes_receipt=takes_receipt)
        self.account.streams += 1
        async with aclosing(chunks):
            async for chunk in chunks:
                self.account.sent_bytes += len(chunk)
                yield chunk

    async def _chunks(
        self, writer: StreamWriter, *, first: int, frees: bool, takes_receipt: bool
    ) -> AsyncGenerator[bytes, None]:
        me = self._stream = object()
        self._news.set()
        yield writer.begin()
        number, said, said_at = first, "", 0.0  # of why it rests
        while self._stream is me:
            self.hear()
            self._news.clear()
            if self._lines:
                yield writer.line(self._lines.popleft())
            elif number <= self.spool.last:
                packed = await self.spool.read(number)
                if packed is None:
                    yield writer.problem(_encoded("gone", f"parcel {number} is not kept any more"))
                    return
                yield await asyncio.to_thread(writer.parcel, packed)
                if frees:
                    self.spool.acknowledge(number)
                number += 1
            elif self.ending:
                receipt = await self.account.bill()
                if receipt and takes_receipt:
                    yield writer.receipt(receipt)
                yield writer.end(self.ending)
                return
            elif self.problem:
                await self.account.bill()  # noted; who broke a visit off is not asked to sign
                yield writer.problem(encode_problem(self.problem))
                return
            elif self.paused != said or (said and self._clock.now() - said_at >= SAY_PAUSED_SECONDS):
                said, said_at = self.paused, self._clock.now()
                yield writer.line(f"{PAUSED} {said}" if said else RESUMED)
            elif not await self._has_news():
                yield writer.alive()
        yield writer.problem(_encoded("gone", "another stream of this visit took its place"))

    async def _has_news(self) -> bool:
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


def _encoded(name: str, detail: str) -> bytes:
    return encode_problem(problem(name, detail))
