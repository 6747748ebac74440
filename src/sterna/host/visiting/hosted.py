"""One visit at a host: its state, its parcels, and the stream by which its home follows it."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection

import msgspec

from sterna.errors import Refused, StorageError
from sterna.host.owner.receipts import Account, Receipts
from sterna.host.owner.status import UNDER_WAY, VisitStatus
from sterna.host.policy.load import Governor
from sterna.host.policy.policy import LoadRules
from sterna.host.premises import Premises
from sterna.host.visiting.logbook import Saved, Tally, Verdict
from sterna.host.visiting.progress import Progress, Step, gone_of, rest_of
from sterna.host.visiting.room import Spool
from sterna.model import Ended, Known, Parcel, State, Visit
from sterna.runtime.reins import Gauge, Reins
from sterna.wire.known import marks_of
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Report, VisitState
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.problems import Problem, encode_problem, problem
from sterna.wire.receipts import TAKES_RECEIPTS
from sterna.wire.stream import PAUSED, RESUMED, TAKES_STOPS, Ending, StreamWriter

ALIVE_SECONDS = 10.0
NOTE_SECONDS = 60.0  # between two notes of how long its home has been silent
SAY_PAUSED_SECONDS = 60.0  # between two lines that say that a visit still rests
MAX_LINES = 1_000  # of the log that are kept until they are read

_log = logging.getLogger(__name__)


class HostedVisit:
    """A visit, its parcels and its state; changed in the loop's thread only."""

    def __init__(
        self,
        visit: Visit,
        *,
        home: str,
        name: str,
        load: LoadRules,
        spool: Spool,
        premises: Premises,
        receipts: Receipts,
        saved: Saved | None = None,
    ) -> None:
        """With `saved`, the visit goes on from where an earlier process left it."""
        clock = premises.clock
        progress = saved.progress if saved else Progress()
        self.visit = visit
        self.rest_of_visit = rest_of(visit, progress) if saved and not progress.ended else visit
        self.home = home  # the key of the home that sent it
        self.name = name  # the owner's name for that home
        self.governor = Governor(load)
        self.reins = Reins(clock)
        self._rested_before = 0.0  # seconds of rest before it began; set by begin()
        self._worked_before = progress.worked_seconds  # by an earlier process
        self._began_at = clock.now()  # in this process; set by begin()
        self.paused = ""  # why it rests, for its home; set by rest() and go_on()
        self.is_deferred = False  # its home may be away for long; set by defer()
        self.since = clock.now()
        self.account = Account(visit, home=home, name=name, receipts=receipts, began=progress.began)
        self.spool = spool
        self.state: VisitState = "queued"
        self.ended: Ended | None = None
        self.ending: Ending | None = None  # the end of the stream, set by finish() and _restore_end()
        self.problem: Problem | None = None  # or what went wrong, set by fail() and _restore_end()
        self.stopped: Problem | None = None  # why the owner stopped it; set by mark_killed()
        self.stop = asyncio.Event()
        self.is_logged = asyncio.Event()  # a restart does not lose it; set by `Visits`
        self.is_killed = False  # its home or the owner asked for its end; set by mark_killed()
        self.is_suspended = False  # the host stops, and a later process goes on; set by suspend()
        self.usage = progress.usage
        self._usage_before = progress.usage  # by an earlier process
        self._clock = clock
        self._premises = premises
        self.heard = clock.now()  # when its home last called
        # Both are changed by _note_tally() alone.
        self._noted = clock.now()
        self._has_tally_failed = False
        self._sent = 0  # the last parcel that was sent
        self._marks = marks_of(visit.known)
        self._tree = Tree(progress.pages, progress.peaks)
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._news = asyncio.Event()
        self._stream: object = None  # the newest one, which alone may read

        if saved:
            self._restore(saved)

    def _restore(self, saved: Saved) -> None:
        tally = saved.tally
        # No time in the future is believed: the clock may have been wrong.
        self.since -= max(self._premises.wall() - saved.admission.at, 0.0)
        self.heard -= tally.silent_seconds  # its home could not call while the host was down
        self.is_deferred = tally.is_deferred
        self._sent = tally.sent
        account = self.account
        account.streams, account.calls, account.sent_bytes = tally.streams, tally.calls, tally.sent_bytes
        self.ended, self.is_killed = saved.progress.ended, saved.verdict.is_killed
        self.stopped = saved.verdict.stopped
        if self.is_killed:
            self.stop.set()
        self._restore_end(saved)

    def _restore_end(self, saved: Saved) -> None:
        """Its end if it was over: it is neither logged again nor a sign of its home."""
        verdict, at = saved.verdict, saved.progress.at
        if self.ended:
            self._end_stream(at)
        elif verdict.state and verdict.problem:
            self.problem = verdict.problem
            self._settle(verdict.state, at)

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
        now, before = self.reins.look(), self._usage_before
        used = Gauge(
            pages=now.pages + before.pages,
            requests=now.requests + before.requests,
            read_bytes=now.read_bytes + before.bytes_received,
            sent_bytes=now.sent_bytes + before.sent_bytes,
            cpu_seconds=now.cpu_seconds + before.cpu_seconds,
            memory_bytes=now.memory_bytes,
        )
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
            **msgspec.structs.asdict(used),
        )

    # -- what the visit does -------------------------------------------------------------------------------

    def begin(self) -> None:
        self.state = "running"
        self._rested_before = self.reins.paused_seconds
        self._began_at = self._clock.now()
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
        step = Step(
            number=parcel.number,
            size_bytes=len(packed),
            checkpoint=parcel.checkpoint,
            gone=gone_of(parcel),
            state=parcel.state,
            usage=parcel.usage,
            pages=self._tree.count,
            peaks=self._tree.peaks,
            began=self.account.began,
            worked_seconds=self._worked_before + self._clock.now() - self._began_at - self.rested_seconds,
            at=self._premises.wall(),
            robots=parcel.robots,
            holds=parcel.holds,
            ended=parcel.ended,
        )
        await self.spool.put(packed, step)
        self.usage = self.usage.plus(parcel.usage)
        self.ended = parcel.ended
        self._news.set()

    def defer(self) -> None:
        """It waits for its hours; from now on its home may be away for long, also after a restart."""
        if not self.is_deferred:
            self.is_deferred = True
            self._note_tally()

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

    def finish(self) -> None:
        """All parcels are in the spool."""
        self._end_stream(self._premises.wall())
        self.hear()

    def _end_stream(self, at: float) -> None:
        assert self.ended
        self.ending = Ending(
            visit=self.visit.id,
            parcels=self.spool.last,
            pages=self._tree.count,
            usage=self.usage,
            ended=self.ended,
            root=self._tree.root(),
        ).signed(self._premises.identity)
        self._settle("killed" if self.is_killed else "finished", at)

    def mark_killed(self, stopped: Problem | None = None) -> None:
        """It is to end, also after a restart; `stopped` says why if the owner wants it."""
        self.is_killed = True
        self.stopped = stopped or self.stopped
        self.stop.set()
        self._news.set()
        self._note_verdict(Verdict(is_killed=True, stopped=self.stopped))

    def fail(self, why: Problem, state: VisitState = "killed") -> None:
        """It ends early; the parcels in the spool stay valid."""
        if not self.is_over:
            self.problem = why
            self._settle(state, self._premises.wall())
            self.hear()
            verdict = Verdict(is_killed=self.is_killed, state=state, problem=why, stopped=self.stopped)
            self._note_verdict(verdict)

    def suspend(self) -> None:
        """It goes on when the host starts again; its stream ends as if the line were cut."""
        self.is_suspended = True
        self._news.set()

    def _note_verdict(self, verdict: Verdict) -> None:
        if self.spool.log:
            try:
                self.spool.log.append(verdict)
            except StorageError as error:
                # It ends all the same, unless the host is restarted before.
                _log.error("visit %s: %s", self.visit.id, error)
            self.spool.count_log()

    def _settle(self, state: VisitState, at: float) -> None:
        """It is over since then."""
        self.state = state
        self.paused = ""
        self.account.end(self.usage, self.ended, root=self._tree.root(), at=at)
        # A visit that is kept for its home must not hold on to all that it knew.
        self.visit = msgspec.structs.replace(self.visit, starts=(), known=Known(), state=State())
        self.rest_of_visit = self.visit
        self._marks = {}
        self._news.set()

    # -- what its home does --------------------------------------------------------------------------------

    def hear(self) -> None:
        self.heard = self._clock.now()
        self._note_tally()

    def count_sent(self, size_bytes: int) -> None:
        """Called before a piece of a stream leaves."""
        self.account.sent_bytes += size_bytes
        self.hear()

    def acknowledge(self, number: int) -> None:
        """Its home has stored the parcels up to this one."""
        self.account.calls += 1
        self.spool.acknowledge(number)
        self.hear()

    def note_silence(self) -> None:
        """Notes from time to time how long its home has not called: restarts must not prolong its time."""
        if self._clock.now() - self._noted >= NOTE_SECONDS:
            self._note_tally()

    def _note_tally(self) -> None:
        if self.spool.log is None:
            return
        account, self._noted = self.account, self._clock.now()
        tally = Tally(
            streams=account.streams,
            calls=account.calls,
            sent_bytes=account.sent_bytes,
            sent=self._sent,
            acknowledged=self.spool.acknowledged,
            silent_seconds=self._noted - self.heard,
            is_deferred=self.is_deferred,
        )
        try:
            self.spool.log.note(tally)
        except StorageError as error:
            # It matters after a restart only: neither the visit nor its home has to suffer.
            if not self._has_tally_failed:
                _log.warning("visit %s: %s", self.visit.id, error)
            self._has_tally_failed = True
        else:
            self._has_tally_failed = False

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
        self, writer: StreamWriter, *, first: int, frees: bool, understands: Collection[str] = ()
    ) -> AsyncGenerator[bytes, None]:
        """The parcels from `first` on and whatever follows them; ends an earlier stream of this visit.

        With `frees` a parcel is deleted as soon as it is written, for a host that keeps nothing. A home that
        understands them gets the visit's receipt and the owner's stop before its end. The caller counts what
        it sends. OSError if a parcel cannot be read now.
        """
        me = self._stream = object()
        self._news.set()
        yield writer.begin()
        number, said, said_at = first, "", 0.0  # what was last said of a pause, and when
        has_told = False  # of the owner's stop
        while self._stream is me:
            self._news.clear()
            if self.stopped and not has_told and TAKES_STOPS in understands:
                has_told = True  # before the last parcel, after which home may visit the site again
                yield writer.stopped(encode_problem(self.stopped))
            elif self._lines:
                yield writer.line(self._lines.popleft())
            elif number <= self.spool.last:
                packed = await self._read(number)
                if packed is None:
                    yield writer.problem(
                        encode_problem(problem("gone", f"parcel {number} is no longer kept"))
                    )
                    return
                self._sent = max(self._sent, number)
                yield await asyncio.to_thread(writer.parcel, packed)
                if frees:
                    self.spool.acknowledge(number)
                number += 1
            elif self.is_over:
                for frame in await self._last_frames(writer, understands):
                    yield frame
                return
            elif self.is_suspended:
                return  # without an end: home tries again later
            elif self.paused != said or (said and self._clock.now() - said_at >= SAY_PAUSED_SECONDS):
                said, said_at = self.paused, self._clock.now()
                yield writer.line(f"{PAUSED} {said}" if said else f"{RESUMED} it goes on")
            else:
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    yield writer.alive()
        yield writer.problem(
            encode_problem(problem("gone", "another stream of this visit replaced this one"))
        )

    async def _last_frames(self, writer: StreamWriter, understands: Collection[str]) -> list[bytes]:
        receipt = await self.account.bill()
        if self.problem:  # the receipt is kept, but the home of a broken visit is not asked to sign
            return [writer.problem(encode_problem(self.problem))]
        assert self.ending
        takes_receipt = receipt and TAKES_RECEIPTS in understands
        return [*([writer.receipt(receipt)] if takes_receipt else []), writer.end(self.ending)]

    async def _read(self, number: int) -> bytes | None:
        """The parcel; None if it is gone or damaged. OSError if it cannot be read now."""
        try:
            return await self.spool.read(number)
        except StorageError as error:
            _log.error("visit %s: %s", self.visit.id, error)
            return None
