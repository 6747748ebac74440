"""One visit at a host: its state, its parcels, and the stream by which its home follows it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from sterna.errors import Refused
from sterna.host.owner.receipts import Account, Receipts
from sterna.host.owner.status import UNDER_WAY, VisitStatus
from sterna.host.policy.load import Governor
from sterna.host.visiting.room import Spool
from sterna.model import Ended, Known, Parcel, State, Usage, Visit
from sterna.runtime.reins import Reins
from sterna.web.clock import Clock
from sterna.wire.keys import Identity
from sterna.wire.known import marks_of
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Report, VisitState
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.problems import Problem, encode_problem, problem
from sterna.wire.stream import Ending, StreamWriter

ALIVE_SECONDS = 10.0
SAY_PAUSED_SECONDS = 60.0  # between two lines that say that a visit still rests
PAUSED = "paused:"  # begins a line that says why a visit rests; its home then waits
RESUMED = "resumed: it goes on"
MAX_LINES = 1_000  # of the log that are kept until they are read


class HostedVisit:
    """A visit, its parcels and its state; changed in the loop's thread only."""

    def __init__(
        self,
        visit: Visit,
        *,
        home: str,
        spool: Spool,
        clock: Clock,
        name: str,
        receipts: Receipts,
        governor: Governor,
    ) -> None:
        self.visit = visit
        self.home = home  # the key of the home that sent it
        self.name = name  # the owner's name for that home
        self.governor = governor
        self.reins = Reins(clock)
        self._rested_before = 0.0  # seconds of rest before it began; set by begin()
        self.paused = ""  # why it rests, for its home; set by rest() and go_on()
        self.is_deferred = False  # it waits or waited for its hours, so its home may be away for long
        self.since = clock.now()
        self.account = Account(visit, home=home, name=name, receipts=receipts)
        self.spool = spool
        self.state: VisitState = "queued"
        self.ended: Ended | None = None
        self.ending: Ending | None = None  # the end of the stream, set by finish()
        self.problem: Problem | None = None  # or what went wrong, set by fail()
        self.stop = asyncio.Event()
        self.is_killed = False  # its home or the owner asked for its end
        self.usage = Usage()
        self._clock = clock
        self.heard = clock.now()  # when its home last called
        self._marks = marks_of(visit.known)
        self._tree = Tree()
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._news = asyncio.Event()
        self._stream: object = None  # the newest one, which alone may read

    @property
    def is_over(self) -> bool:
        return self.state not in UNDER_WAY

    @property
    def names(self) -> dict[str, str]:
        """What identifies it in the audit log."""
        crawler = self.visit.crawler.name
        return {"visit": self.visit.id, "home": self.name, "key": self.home, "crawler": crawler}

    @property
    def rested_seconds(self) -> float:
        """How long it has rested since it began."""
        return self.reins.paused_seconds - self._rested_before if self.state == "running" else 0.0

    def status(self) -> VisitStatus:
        return VisitStatus(
            visit=self.visit.id,
            home=self.home,
            name=self.name,
            crawler=self.visit.crawler.name,
            state=self.state,
            since=self.since,
            kept_bytes=self.spool.kept_bytes,
            limits=self.visit.budget,
            paused=self.paused,
            **msgspec.structs.asdict(self.reins.look()),
        )

    # -- what the visit does -------------------------------------------------------------------------------

    def begin(self) -> None:
        self.state = "running"
        self._rested_before = self.reins.paused_seconds
        self.account.begin()

    def pack(self, parcel: Parcel) -> bytes:
        """The parcel as it travels; its pages count from now on. For a thread, one at a time."""
        sent = as_sent(parcel, self._marks)
        packed = pack_parcel(sent, self._marks)
        for page in sent.pages:
            self._tree.add(leaf_of(page))
        return packed

    async def keep(self, parcel: Parcel, packed: bytes) -> None:
        """Puts the packed parcel into the spool, from which its home gets it."""
        await self.spool.put(parcel.number, packed)
        self.usage = self.usage.plus(parcel.usage)
        self.ended = parcel.ended
        self._news.set()

    def log(self, line: str) -> None:
        self._lines.append(line)
        self._news.set()

    def rest(self, why: str) -> None:
        """It makes no requests from now on, and its home is told why."""
        self.reins.pause()
        if self.paused != why:  # repeated news would keep the stream from sending signs of life
            self.paused = why
            self._news.set()

    def go_on(self) -> None:
        self.reins.go_on()
        self.paused = ""
        self._news.set()

    def finish(self, host: Identity) -> None:
        """All parcels are in the spool."""
        assert self.ended
        self.ending = Ending(
            visit=self.visit.id,
            parcels=self.spool.last,
            pages=self._tree.count,
            usage=self.usage,
            ended=self.ended,
            root=self._tree.root(),
        ).signed(host)
        self._settle("killed" if self.is_killed else "finished")

    def fail(self, why: Problem, state: VisitState = "killed") -> None:
        """It ends early; the parcels in the spool stay valid."""
        if not self.is_over:
            self.problem = why
            self._settle(state)

    def _settle(self, state: VisitState) -> None:
        self.state = state
        self.paused = ""
        self.account.end(self.usage, self.ended, root=self._tree.root())
        # A visit that is kept for its home must not hold on to all that it knew.
        self.visit = msgspec.structs.replace(self.visit, starts=(), known=Known(), state=State())
        self._marks = {}
        self.heard = self._clock.now()
        self._news.set()

    # -- what its home does --------------------------------------------------------------------------------

    def hear(self) -> None:
        self.heard = self._clock.now()

    def acknowledge(self, number: int) -> None:
        """Its home has stored the parcels up to this one."""
        self.account.calls += 1
        self.hear()
        self.spool.acknowledge(number)

    def report(self) -> Report:
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
            raise Refused("malformed", f"there is no parcel {first}: the last one is {self.spool.last}")
        if first <= self.spool.acknowledged:
            raise Refused("gone", f"the parcels up to {self.spool.acknowledged} were acknowledged")

    async def stream(
        self, writer: StreamWriter, *, first: int, frees: bool, takes_receipt: bool
    ) -> AsyncGenerator[bytes, None]:
        """The parcels from `first` on and whatever follows them; ends an earlier stream of this visit.

        With `frees` a parcel is deleted as soon as it is written, for a host that keeps nothing. With
        `takes_receipt` the visit's receipt comes before its end. The caller counts what it sends.
        """
        me = self._stream = object()
        self._news.set()
        yield writer.begin()
        number, said, said_at = first, "", 0.0  # what was last said of a pause, and when
        while self._stream is me:
            self.hear()
            self._news.clear()
            if self._lines:
                yield writer.line(self._lines.popleft())
            elif number <= self.spool.last:
                packed = await self.spool.read(number)
                if packed is None:
                    yield writer.problem(
                        encode_problem(problem("gone", f"parcel {number} is no longer kept"))
                    )
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
                await self.account.bill()  # kept, but the home of a broken visit is not asked to sign
                yield writer.problem(encode_problem(self.problem))
                return
            elif self.paused != said or (said and self._clock.now() - said_at >= SAY_PAUSED_SECONDS):
                said, said_at = self.paused, self._clock.now()
                yield writer.line(f"{PAUSED} {said}" if said else RESUMED)
            else:
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    yield writer.alive()
        yield writer.problem(
            encode_problem(problem("gone", "another stream of this visit replaced this one"))
        )
