"""The visits at a host: so many at once, each in its own jail, the rest in a queue, all of them bounded."""

import asyncio
import contextvars
import gc
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from sterna.errors import JailError, Refused, SternaError
from sterna.host.config import HostConfig
from sterna.host.hosted import HostedVisit
from sterna.host.spool import Room, Spool
from sterna.host.workshop import Workshop
from sterna.model import Parcel, Visit
from sterna.web.clock import Clock
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.problems import problem

KILL_SECONDS = 8.0  # for a soft stop, which gives a transfer 5 s to end
SWEEP_SECONDS = 5.0
RETRY_SECONDS = 30.0
MAX_STARTS_TOTAL = 1_000_000  # of all visits under way: each takes some 200 bytes of memory
MAX_KEPT = 256  # visits that are over and not acknowledged

_log = logging.getLogger(__name__)
_rules_log = logging.getLogger("sterna.runtime.handler")
_current: contextvars.ContextVar[HostedVisit | None] = contextvars.ContextVar("visit", default=None)

Announce = Callable[[str], None]  # shows a line to the owner


class Visits:
    """Begins, finds, ends and forgets visits; made inside a running loop."""

    def __init__(
        self,
        config: HostConfig,
        workshop: Workshop,
        *,
        identity: Identity,
        clock: Clock,
        announce: Announce,
        folder: Path,
    ) -> None:
        self._config = config
        self._folder = folder  # nobody else's, so what is in it was left by a process that is gone
        self._workshop = workshop
        self._identity = identity
        self._clock = clock
        self._announce = announce
        self._room = Room(config.limits.kept_bytes_total)
        self._slots = asyncio.Semaphore(config.limits.crawlers_at_once)
        # Changed in the loop's thread, by begin() and _forget().
        self._visits: dict[tuple[str, str], HostedVisit] = {}
        self._tasks: dict[HostedVisit, asyncio.Task[None]] = {}
        self._is_closing = False
        _listen_to_rules()
        shutil.rmtree(folder, ignore_errors=True)
        self._sweeper = asyncio.create_task(self._sweep())

    def begin(self, visit: Visit, *, home: PublicKey, name: str) -> HostedVisit:
        """Takes a visit on; Refused where there is no room, or where it is here already."""
        under_way = [each for each in self._visits.values() if not each.is_over]
        limits = self._config.limits
        if (home.text, visit.id) in self._visits:
            raise Refused("replayed", f"the visit {visit.id} is here: resume it, or take another name")
        if self._is_closing or len(under_way) >= limits.crawlers_at_once + limits.queue:
            raise Refused("busy", "the queue is full", retry_after=RETRY_SECONDS)
        if sum(each.home == home.text for each in under_way) >= limits.visits_of_a_home:
            raise Refused(
                "busy", f"you have {limits.visits_of_a_home} visits here", retry_after=RETRY_SECONDS
            )
        if sum(len(each.visit.starts) for each in under_way) + len(visit.starts) > MAX_STARTS_TOTAL:
            raise Refused("busy", "too many start URLs are here", retry_after=RETRY_SECONDS)
        # Two homes may give their visits the same name.
        spool = Spool(self._folder / f"{home.id}-{visit.id}", most_bytes=limits.kept_bytes, room=self._room)
        hosted = HostedVisit(visit, home=home.text, spool=spool, clock=self._clock)
        self._visits[home.text, visit.id] = hosted
        self._tasks[hosted] = asyncio.create_task(self._carry_out(hosted, name))
        return hosted

    def find(self, home: str, visit: str) -> HostedVisit:
        """The visit that this home sent; Refused if it is not here, or another's."""
        hosted = self._visits.get((home, visit))
        if hosted is None:
            raise Refused("gone", f"there is no visit {visit} of yours")
        hosted.hear()
        return hosted

    async def kill(self, hosted: HostedVisit) -> None:
        """Ends a visit: softly, so that what it found is kept, and if that takes too long, at once."""
        task = self._tasks[hosted]
        hosted.is_killed = True
        hosted.stop.set()
        if hosted.state == "queued":
            task.cancel()
        await asyncio.wait({task}, timeout=KILL_SECONDS)
        task.cancel()
        await asyncio.wait({task})

    def acknowledge(self, hosted: HostedVisit, number: int) -> None:
        """Deletes what home has; a visit that is over and has nothing left is forgotten in its time."""
        hosted.acknowledge(number)

    def stop(self) -> None:
        """Asks all visits to end softly; no other begins."""
        self._is_closing = True
        for hosted in self._tasks:
            hosted.stop.set()

    async def close(self) -> None:
        """Ends all visits, at once if they were not asked before."""
        self._is_closing = True
        self._sweeper.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(self._sweeper, *self._tasks.values(), return_exceptions=True)
        for key in list(self._visits):
            self._forget(key)
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- one visit -----------------------------------------------------------------------------------------

    async def _carry_out(self, hosted: HostedVisit, name: str) -> None:
        """Never raises but when it is cancelled: whatever goes wrong becomes the visit's problem."""
        _current.set(hosted)
        crawler = hosted.visit.crawler.name
        place = _Place(self._slots)
        try:
            await place.take()
            self._announce(f"visit {hosted.visit.id} of {name}: crawler {crawler!r} begins")
            hosted.state = "running"
            async with self._workshop.use() as runtime:
                await runtime.carry_out(hosted.visit, deliver=_Delivery(hosted, place), stop=hosted.stop)
            hosted.finish(self._identity.sign)
        except asyncio.CancelledError:
            hosted.fail(problem("gone", "the visit was killed"))
            raise
        except JailError as error:
            _log.error("visit %s: %s", hosted.visit.id, error)
            hosted.fail(problem("no-jail", "this machine cannot jail the crawler's rules"))
        except Exception as error:
            detail = str(error) if isinstance(error, SternaError) else repr(error)
            _log.error("visit %s failed: %s", hosted.visit.id, detail, exc_info=error)
            hosted.fail(problem("internal", "the host failed; its log says why"))
        finally:
            place.leave()
            self._announce(_farewell(hosted, name))
            # Its loop refers to itself, and with it to all that the visit set out with.
            asyncio.get_running_loop().call_soon(gc.collect)

    # -- what is over --------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self._sweep_once()
            except OSError as error:
                _log.error("what visits left cannot be deleted: %s", error)

    def _sweep_once(self) -> None:
        late = self._clock.now() - self._config.limits.kept_seconds
        over = sorted((hosted.heard, key) for key, hosted in self._visits.items() if hosted.is_over)
        surplus = {key for _, key in over[: max(len(over) - MAX_KEPT, 0)]}
        for key, hosted in list(self._visits.items()):
            if hosted.heard < late or key in surplus:
                self._expire(key, hosted)

    def _expire(self, key: tuple[str, str], hosted: HostedVisit) -> None:
        if not hosted.is_over:
            _log.warning("visit %s expired: its home was not heard of", hosted.visit.id)
            hosted.fail(problem("gone", "the visit expired"), "expired")
        self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        hosted = self._visits.pop(key)
        task = self._tasks.pop(hosted)
        task.cancel()
        hosted.spool.delete()


class _Place:
    """One of the places for crawlers at work; a visit that waits for its home gives it to another."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._is_taken = False

    async def take(self) -> None:
        await self._slots.acquire()
        self._is_taken = True

    def leave(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._slots.release()


class _Delivery:
    """Takes a visit's parcels; while the spool is full, the crawler rests."""

    def __init__(self, hosted: HostedVisit, place: _Place) -> None:
        self._hosted = hosted
        self._place = place

    async def __call__(self, parcel: Parcel) -> None:
        packed = await self._hosted.pack(parcel)
        while not self._hosted.spool.has_room(len(packed)):
            self._place.leave()
            await self._hosted.spool.wait_for_room(len(packed))
            await self._place.take()
        await self._hosted.keep(parcel, packed)


def _farewell(hosted: HostedVisit, name: str) -> str:
    why = hosted.ended or (hosted.problem.detail if hosted.problem else "")
    counts = f"{hosted.pages:,} pages, {hosted.spool.total_bytes:,} bytes before compression"
    return f"visit {hosted.visit.id} of {name} is over ({why}): {counts}"


# -- the log of rules --------------------------------------------------------------------------------------


class _RulesLog(logging.Filter):
    """Gives the lines that a crawler's rules write to the visit in which they were written.

    The owner's log is no place for them: strangers wrote them, as many as they like.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        hosted = _current.get()
        if not hosted or record.levelno != logging.INFO:
            return True
        hosted.log(record.getMessage())
        return False


_RULES_LOG = _RulesLog()


def _listen_to_rules() -> None:
    if _RULES_LOG not in _rules_log.filters:
        _rules_log.addFilter(_RULES_LOG)
        _rules_log.setLevel(logging.INFO)
