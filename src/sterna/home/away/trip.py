"""One trip of a crawler to a host and back, as a state machine: events in, actions out. Pure.

`courier` carries the actions out and reports each result as the next event: a list of events replays a trip.
The next event is that of the last action that `Trip.on` returned.
"""

from enum import StrEnum

from msgspec.structs import replace

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, SternaError
from sterna.home.away import events as ev
from sterna.home.away.luggage import is_negligent, with_missed
from sterna.home.away.negotiation import RENEWED, is_hosts_own
from sterna.home.away.patience import Clocks, Patience
from sterna.home.ledger.records import Out
from sterna.model import Arrival, Budget, Ended, Hold, Parcel, Record, Visit
from sterna.web.politeness import site_key

NEAR_SECONDS = 0.02  # if a greeting takes less, compressing takes longer than sending
NEAR_LEVEL, FAR_LEVEL = 3, 9
TROUBLED_SECONDS = 60.0

# After these ends home holds the site for a while, because hosts do not report their holds.
_TROUBLES = frozenset({Ended.BLOCKED, Ended.FAILING, Ended.DISQUALIFIED})
# Refusals of an order that the host may have accepted when it first came.
_TAKEN_BEFORE = frozenset({"ticket-spent", "replayed"})
# Refusals after which a visit at the host may be resumed.
_PASSING = frozenset({"busy", "ticket-spent", "ticket-expired", "replayed", "internal"})

Actions = tuple[ev.Action, ...]


class Stage(StrEnum):
    """The state of a trip."""

    LEAVING = "leaving"
    GREETED = "greeted"  # a session is open
    SHAPED = "shaped"  # the visit fits what the host grants
    ORDERED = "ordered"  # the host may have the visit
    STREAMING = "streaming"  # parcels arrive
    CUT = "cut"  # the line broke; a retry follows
    WAITING = "waiting"  # the stream is over, and its pages are being checked
    DONE = "done"
    LOST = "lost"


class Departure(Record, frozen=True, kw_only=True):
    """What a trip starts from."""

    visit: Visit
    is_live_only: bool = False  # the host keeps no visits: a cut ends the trip
    resume_from: int = 0  # the first parcel still to receive; 0: the crawler has not left yet
    own: Budget | None = None  # the crawler's own budget, if the visit's is what the host granted
    level: int = 0  # of compression; 0: chosen by the time of a greeting
    is_halted: bool = False  # the site's owner stopped crawlers before: nothing is fetched from here
    patience: Patience = Patience()


class Trip:
    """The state of one trip, and in the end its result; on() alone changes it."""

    def __init__(self, departure: Departure, *, now: float) -> None:
        self._departure = departure
        self._patience = departure.patience
        self._own = departure.own or departure.visit.budget
        self.visit = departure.visit  # replaced by the shaped one, once the host has said what it grants
        self.stage = Stage.LEAVING
        self._clocks = Clocks(self.visit.budget.seconds, self._patience, now=now)
        # Tries and streams; those of _start_at() too.
        self._tries = 0
        self.cuts = 0  # after which the visit was resumed
        self._start_at(departure.resume_from)
        # Set by Opened.
        self._is_checked = self._is_held = False
        # The session.
        self._greeting: ev.Greeted | None = None
        self._greeted_at = now
        self._is_packed = self._is_renewal = False
        self._promised: int | None = None
        # What was received.
        self._ended: Ended | None = None  # as the last parcel says
        self.pages = 0
        self._size_bytes = 0  # of the parcel that is being stored
        self._reported: set[int] = set()
        self._last: tuple[Parcel, str] | None = None  # the last parcel, and the visit's fault if any
        self._final: Ended | None = None  # how the visit ended, once that is committed
        self._is_stopping = self._is_run_stopped = False
        # The result.
        self.out = Out.WAITING
        self.was_taken = True  # False: the host did not take the crawler, and the visit is still to be made
        self.failure: SternaError | None = None
        self.faults: list[ev.Fault] = []
        self.ended: Ended | None = None  # None: stopped by home before the host reported an end
        self.is_proven = False  # the pages match the root that the host signed
        self.receipt = ""  # "signed", or why home did not sign the receipt
        self.stop: ev.Fault | None = None  # the owner stopped the crawler

    @property
    def is_over(self) -> bool:
        return self.out is not Out.WAITING

    @property
    def parcels(self) -> int:
        return self.next - self._first

    def _start_at(self, number: int) -> None:
        """Resumes from this parcel; 0 sends the visit."""
        self._was_sent = self._is_taken = number > 0
        self._streams = int(self._was_sent)  # ordered in this run, and one for an earlier run
        self.next = self._first = self._tried_at = max(number, 1)  # parcel numbers

    def on(self, event: ev.Event, *, now: float) -> Actions:  # noqa: PLR0911, PLR0912 - a case for each
        """The actions to carry out next."""
        match event:
            case ev.Moment.BEGUN:
                return (ev.Step.OPEN,) if self._departure.resume_from else (ev.Step.WRITE_OUT, ev.Step.OPEN)
            case ev.Opened():
                return self._open(event)
            case ev.Greeted():
                return self._greeted(event, now)
            case ev.Ready():
                return self._ready(event.visit, now)
            case ev.Moment.ACCEPTED:
                self.stage = Stage.STREAMING
                self._is_taken = True
                self._clocks.begin(now)
                return (ev.Step.READ,)
            case ev.Came():
                return self._came(event, now)
            case ev.Said():
                return self._said(event.line, now)
            case ev.OwnerStopped():
                fault = ev.Fault(site=self.visit.site, reason=event.reason, problem=ev.STOPPED)
                return (*self._halt(replace(fault, until=event.until)), ev.Step.READ)
            case ev.StreamOver():
                self.is_proven = event.is_proven
                return (ev.Sign(self._streams - 1),)
            case ev.Signed():
                self.receipt = event.receipt
                return self._arrive(self._ended)
            case ev.Moment.STORED:
                return self._stored(now)
            case ev.Judged():
                if event.error:
                    return self._lose(event.error)
                return (ev.Step.RELEASE,) if self._is_held else self._finish()
            case ev.Released():
                return self._released(event, now)
            case ev.Looked():
                return self._looked(event)
            case ev.Moment.SLEPT:
                self._tried_at = self.next
                return (ev.Greet(self._was_sent),)
            case ev.Stopped():
                return self._stop(event)
            case ev.Moment.TIME_UP:
                return self._arrive(None)
            case ev.Failed():
                return self._failed(event.error)
            case ev.Closed():
                return self._closed(event.out)

    # -- until the stream --------------------------------------------------------------------------------

    def _open(self, opened: ev.Opened) -> Actions:
        self._is_checked, self._is_held = opened.is_checked, opened.is_held
        self.pages = opened.pages
        if opened.last:
            self._start_at(max(self._departure.resume_from, opened.last + 1))
        if opened.is_held and opened.is_proven:
            return self._leave() if self._departure.is_halted else self._check()
        return (ev.Greet(self._was_sent),)

    def _greeted(self, greeting: ev.Greeted, now: float) -> Actions:
        self.stage = Stage.GREETED
        self._greeting = greeting
        if self._is_renewal or (self._was_sent and self._is_packed):
            self._is_renewal = False
            return self._order()
        self._greeted_at = now
        return (ev.Shape(is_new=not self._was_sent),)

    def _ready(self, visit: Visit, now: float) -> Actions:
        assert self._greeting
        self.stage = Stage.SHAPED
        self._is_packed = True
        self.visit = visit
        if not self._was_sent:
            self._clocks = Clocks(visit.budget.seconds, self._patience, now=self._greeted_at)
            self._promised = self._greeting.priority
        # Packing is slow if much is known of the site, and tickets expire soon.
        if now - self._greeted_at > self._greeting.ticket_seconds / 2:
            self._is_renewal = True
            return (ev.Greet(self._was_sent),)
        return self._order()

    def _order(self) -> Actions:
        assert self._greeting
        self.stage = Stage.ORDERED
        resume_from = self.next if self._was_sent else 0
        self._was_sent = True
        self._streams += 1
        by_distance = NEAR_LEVEL if self._greeting.seconds < NEAR_SECONDS else FAR_LEVEL
        level = min(self._departure.level or by_distance, self._greeting.level)
        return (ev.Order(resume_from=resume_from, level=level),)

    # -- the stream --------------------------------------------------------------------------------------

    def _came(self, came: ev.Came, now: float) -> Actions:
        if self._clocks.is_over(now):
            return self._give_up()
        parcel = came.parcel
        self.next = parcel.number + 1
        self._ended = parcel.ended
        self.pages += len(parcel.pages)
        self._size_bytes = came.size_bytes
        if self._is_held:
            return (ev.Hold(parcel, came.size_bytes),)
        return self._deliver(parcel, now)

    def _said(self, line: str, now: float) -> Actions:
        if self._clocks.is_over(now):
            return self._give_up()
        self._clocks.note_line(line, now)
        return (ev.Tell(line), ev.Step.READ) if line else (ev.Step.READ,)

    def _stored(self, now: float) -> Actions:
        if self._last:
            self._final = self._last[0].ended
        if self.stage is Stage.WAITING:
            return (ev.Step.RELEASE,)
        self._clocks.note_parcel(now)
        if self._departure.is_live_only:  # it keeps no parcels, so it needs no acknowledgements
            return (ev.Step.READ,)
        return ev.Acknowledge(self.next - 1, self._size_bytes), ev.Step.READ

    def _give_up(self) -> Actions:
        gone = HostGone(f"the host of {self.visit.site} makes no progress: {self.pages} pages so far")
        return (ev.Kill(), *(self._arrive(None) if self._is_stopping else self._break(gone)))

    # -- delivering --------------------------------------------------------------------------------------

    def _deliver(self, parcel: Parcel, now: float) -> Actions:
        arrival = Arrival(received_at=now, size_bytes=self._size_bytes)
        parcel = replace(parcel, arrival=arrival)
        self._reported.update(page.fingerprint for page in parcel.pages)
        self._reported.update(parcel.checkpoint.done)
        if not parcel.ended:
            return (ev.Commit(parcel),)
        fault = self._fault(parcel.ended)
        parcel = self._completed(parcel, now)
        self._last = (parcel, fault)
        if parcel.ended is Ended.STOPPED:  # by its host, or by the user
            return (ev.Step.LOOK_FOR_KILL,)
        return self._deliver_last(is_killed=False)

    def _deliver_last(self, *, is_killed: bool) -> Actions:
        """Blames the host before the last parcel frees the site for another visit."""
        assert self._last
        parcel, fault = self._last
        is_fair = not (self._departure.resume_from or self._is_run_stopped or is_killed or self.stop)
        blame = self._blame(ev.Fault(site=self.visit.site, reason=fault)) if fault and is_fair else ()
        return (*blame, ev.Commit(parcel))

    def _fault(self, ended: Ended) -> str:
        """Why the next visit should be made from here, although this one is complete; "" without a reason."""
        if not self._reported:
            return f"the visit to its host ended as {ended} without results"
        if ended is Ended.FINISHED and is_negligent(self.visit, reported=self._reported):
            return "its host did not report URLs that it was sent"
        if self._is_hosts_own(ended) and ended not in RENEWED:
            return f"its host grants too little for this crawler: {ended}"
        return ""

    def _is_hosts_own(self, ended: Ended) -> bool:
        return is_hosts_own(ended, own=self._own, granted=self.visit.budget)

    def _completed(self, parcel: Parcel, now: float) -> Parcel:
        """Adds to the last parcel what home decides: missed URLs, whether to continue, a hold."""
        parcel = with_missed(parcel, self.visit, reported=self._reported)
        if parcel.ended and self._is_hosts_own(parcel.ended):
            # The crawler's own limit would end it at this site; after the host's it continues.
            parcel = replace(parcel, ended=Ended.BUDGET)
        if parcel.ended in _TROUBLES:
            hold = Hold(site_key(parcel.site), now + TROUBLED_SECONDS)
            parcel = replace(parcel, holds=(*parcel.holds, hold))
        return parcel

    # -- when the line breaks, or the run stops ----------------------------------------------------------

    def _failed(self, error: SternaError) -> Actions:
        if isinstance(error, ParcelRefused):
            self.failure = error
            return ev.Kill(), ev.Step.DISCARD, self._close(Out.LOST, str(error))
        if isinstance(error, Refused) and error.problem == ev.STOPPED:
            return self._refused_by_owner(error)
        if self._is_stopping:
            return self._arrive(None)  # the host may break off a visit that it was asked to end
        if isinstance(error, (Refused, LineBroken)):
            return self._cut(error)
        return self._break(error)

    def _cut(self, error: Refused | LineBroken) -> Actions:
        """Another try after a pause, or the end of the trip."""
        if not self._was_sent:
            return self._break(error)
        tries = 0 if self.next > self._tried_at else self._tries
        if self._may_try(error, tries):
            pause = self._patience.pause_seconds * float(2**tries)
            asked = error.retry_after if isinstance(error, Refused) else None
            self.stage = Stage.CUT
            self._tries = tries + 1
            self.cuts += self._is_taken
            return (ev.Sleep(min(max(pause, asked or 0.0), self._patience.longest_pause_seconds)),)
        if self._ended:
            return self._arrive(self._ended)  # only the proof is missing
        if isinstance(error, Refused) and not self._is_taken:
            return self._break(error)
        number = self.next - 1
        return self._break(HostGone(f"the host of {self.visit.site} was lost after parcel {number}: {error}"))

    def _may_try(self, error: Refused | LineBroken, tries: int) -> bool:
        if self._departure.is_live_only or tries + 1 >= self._patience.tries:
            return False
        if isinstance(error, LineBroken):
            return True
        if self._is_taken:
            return error.problem in _PASSING
        if error.problem == "gone":  # the order did not arrive: send it again
            self._was_sent = False
            return True
        return error.problem in _TAKEN_BEFORE

    # -- when the owner stops the crawler ----------------------------------------------------------------

    def _halt(self, fault: ev.Fault) -> Actions:
        """Stored before the site is released, as every fault is."""
        self.stop = fault
        return self._blame(fault)

    def _refused_by_owner(self, error: Refused) -> Actions:
        halt = self._halt(self._fault_of(error))
        if self._is_taken and self._is_held:
            return (*halt, *self._leave())
        self.failure = error
        self.stage = Stage.LOST
        self.was_taken = self._is_taken
        close = self._close(Out.LOST, f"stopped by the owner: {error.detail}", is_over=self.was_taken)
        return (*halt, ev.Step.DISCARD, close)

    def _leave(self) -> Actions:
        """What is held is checked by a later run, when pages may be fetched from here again."""
        self.out = Out.AWAY
        return ()

    def _stop(self, stopped: ev.Stopped) -> Actions:
        """Asks the host to end the visit, and receives what it still sends."""
        self._is_run_stopped = stopped.is_run
        self._is_stopping = True
        if not self._was_sent or self._departure.is_live_only:
            return self._arrive(None)
        return ev.Kill(is_beside=True), ev.Wait(self._patience.stop_seconds)

    # -- when all has come -------------------------------------------------------------------------------

    def _arrive(self, ended: Ended | None) -> Actions:
        """The stream is over, without a failure."""
        self.ended = ended
        if self.stop and self._is_held:
            return (ev.Step.PROVE, *self._leave())
        if self.stop or not self._is_checked:
            return self._finish()
        return (ev.Step.PROVE, *self._check()) if self._is_held else self._check()

    def _break(self, error: SternaError) -> Actions:
        """The visit failed; the pages received before are checked and used all the same."""
        self.failure = error
        if self.stop and self._is_held and self.pages:
            return (ev.Step.PROVE, *self._leave())
        is_checked = self._is_checked and self.pages and not self.stop
        return self._check() if is_checked else self._lose(error)

    def _check(self) -> Actions:
        self.stage = Stage.WAITING
        return (ev.Check(self.visit, is_whole=self._is_held or self._departure.resume_from <= 1),)

    def _released(self, released: ev.Released, now: float) -> Actions:
        if released.parcel is None:
            return (ev.Step.DISCARD, *self._finish())
        if released.parcel.number < self._departure.resume_from:
            return (ev.Step.RELEASE,)  # an earlier run delivered it
        self._size_bytes = released.size_bytes
        return self._deliver(released.parcel, now)

    def _finish(self) -> Actions:
        if self.failure:
            return self._lose(self.failure)
        stopped = f"stopped by the owner: {self.stop.reason}" if self.stop else "stopped"
        return (self._close(Out.RETURNED, stopped if self.stop else self._final or stopped),)

    def _lose(self, error: SternaError) -> Actions:
        self.failure = error
        self.stage = Stage.LOST
        if not isinstance(error, (Refused, LineBroken)):
            return ev.Step.DISCARD, ev.Step.LOOK_FOR_KILL
        # The host does not have the visit, unless an earlier run sent it.
        self.was_taken = self._departure.resume_from > 0
        close = self._close(Out.LOST, f"not taken: {error}", is_over=self.was_taken)
        return ev.Step.DISCARD, *self._blame(self._fault_of(error)), close

    def _looked(self, looked: ev.Looked) -> Actions:
        if self.stage is not Stage.LOST:
            return self._deliver_last(is_killed=looked.is_killed)
        assert self.failure
        blame = () if looked.is_killed else self._blame(self._fault_of(self.failure))
        return *blame, self._close(Out.LOST, str(self.failure))

    def _close(self, out: Out, reason: str, *, is_over: bool = True) -> ev.Close:
        return ev.Close(out=out, reason=reason, is_over=is_over, promised=self._promised)

    def _blame(self, fault: ev.Fault) -> Actions:
        self.faults.append(fault)
        return (fault,)

    def _fault_of(self, error: SternaError) -> ev.Fault:
        fault = ev.Fault(site=self.visit.site, reason=str(error))
        if isinstance(error, Refused):
            detail = error.detail if error.problem == ev.STOPPED else str(error)
            seconds, until = error.retry_after, error.until
            return replace(fault, reason=detail, problem=error.problem, seconds=seconds, until=until)
        return fault

    def _closed(self, out: Out) -> Actions:
        self.stage = Stage.LOST if self.failure else Stage.DONE
        self.out = out
        return ()
