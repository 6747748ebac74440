"""The visits at a host: a number of them at work, the rest in a queue, all of them bounded."""

import asyncio
import gc
import logging
import shutil
from contextlib import ExitStack
from pathlib import Path

import msgspec

from sterna.errors import JailError, Refused, SternaError, StorageError, VisitDamaged, WireError
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.policy import LoadRules
from sterna.host.policy.terms import LATE_SECONDS, Terms, outside
from sterna.host.premises import Premises
from sterna.host.site.source import ShieldedFetcher
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.leftovers import never_began, set_aside, visits_left
from sterna.host.visiting.logbook import Admission, Saved
from sterna.host.visiting.room import RETRY_SECONDS, DiskSpace, Slots, Spool
from sterna.host.visiting.workshop import Workshop, redirect_rules
from sterna.model import Ended, Parcel, Visit
from sterna.runtime.cell.kernel import give_back_memory
from sterna.wire.keys import PublicKey
from sterna.wire.problems import Problem, problem

KILL_SECONDS = 8.0  # to end by itself: a transfer gets 5 s
SWEEP_SECONDS = 5.0
MAX_STARTS_TOTAL = 1_000_000  # of all visits under way: each takes some 200 bytes of memory
MAX_KEPT = 256  # visits that are over and not acknowledged
START_BYTES = 200  # of memory for a start URL besides its characters, approximately

_log = logging.getLogger(__name__)


class Visits:
    """Begins, finds, ends and forgets visits; created inside a running loop."""

    def __init__(self, premises: Premises, workshop: Workshop, *, folder: Path, receipts: Receipts) -> None:
        self._premises = premises
        self._folder = folder  # used by this process alone: what is in it was left by one that is gone
        self._workshop = workshop
        self._receipts = receipts
        self._space = DiskSpace(premises.limits.kept_bytes_total)
        slots = premises.commons.slots()
        self.slots = Slots(lambda: premises.limits.crawlers_at_once, within=slots)
        premises.commons.counts.append(lambda: len(self.under_way()))
        # Changed in the loop's thread, by begin() and _forget().
        self._visits: dict[tuple[str, str], HostedVisit] = {}
        self._tasks: dict[HostedVisit, asyncio.Task[None]] = {}
        self._unread: set[str] = set()  # folders of visits that this process could not take up; by restore()
        self._killing: set[asyncio.Task[None]] = set()  # by the owner; changed by kill_all()
        self._is_closing = False  # set by stop() and close()
        self._has_garbage = False  # visits have ended since memory was last given back
        self._sweeping = asyncio.create_task(self._sweep())

    async def begin(
        self, visit: Visit, *, home: PublicKey, terms: Terms, place: ExitStack | None = None
    ) -> HostedVisit:
        """Takes a visit on, and closes its place at its end; Refused if there is no room, or it is here."""
        premises = self._premises
        is_early = self.check(visit, home=home, terms=terms)
        names = {"visit": visit.id, "home": terms.name, "key": home.text, "crawler": visit.crawler.name}
        premises.notes.must(
            "visit-taken", **names, agent=visit.etiquette.outside_agent, pages=visit.budget.pages
        )
        # Two homes may give their visits the same name.
        spool = self._spool(self._folder / _name(home, visit.id))
        hosted = HostedVisit(
            visit,
            home=home.text,
            name=terms.name,
            load=terms.load,
            spool=spool,
            premises=premises,
            receipts=self._receipts,
        )
        self._visits[home.text, visit.id] = hosted
        if is_early:
            self._defer(hosted, terms)
        self._tasks[hosted] = task = asyncio.create_task(self._carry_out(hosted))
        task.add_done_callback(lambda _: hosted.is_logged.set())  # also if it is cancelled before it begins
        if place:
            task.add_done_callback(lambda _: place.close())
        await hosted.is_logged.wait()  # from now on a restart does not lose it
        return hosted

    def _spool(self, folder: Path) -> Spool:
        most, is_kept = self._premises.limits.kept_bytes, not self._premises.is_live_only
        return Spool(folder, most_bytes=most, space=self._space, is_kept=is_kept)

    async def restore(self) -> None:
        """Goes on with the visits that an earlier process left; StorageError if they cannot be listed.

        One that is damaged is set aside. One that cannot be read now stays for the next start.
        """
        for folder in await asyncio.to_thread(visits_left, self._folder):
            try:
                hosted = await self._take_up(folder)
            except (VisitDamaged, ValueError, WireError) as error:
                await self._put_aside(folder, error)
            except (StorageError, OSError) as error:
                self._leave(folder, error)
            else:
                self._premises.notes.note("visit-restored", **hosted.names, parcels=hosted.spool.last)
        if count := len(self._visits):
            self._premises.announce(f"{count} visit{'s' * (count != 1)} of an earlier run kept")

    async def _take_up(self, folder: Path) -> HostedVisit:
        spool = self._spool(folder)
        assert spool.log
        saved = await asyncio.to_thread(spool.log.read)
        if saved.admission.visit.site != self._premises.config.site:  # it came here since the host began
            raise StorageError(f"it belongs to another site, {saved.admission.visit.site}")
        return self._reload(spool, saved)

    async def _put_aside(self, folder: Path, why: Exception) -> None:
        if await asyncio.to_thread(never_began, folder):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            return
        try:
            most_bytes = self._premises.limits.kept_bytes_total
            place = await asyncio.to_thread(set_aside, folder, most_bytes=most_bytes)
        except (StorageError, OSError) as error:
            self._leave(folder, error)
            return
        advice = f"its files are kept in {place}: delete them, or put them back with what they lack"
        _log.error("visit %s is lost (%s); %s", folder.name, why, advice)
        self._premises.notes.note("visit-lost", folder=folder.name, why=str(why), aside=str(place))

    def _leave(self, folder: Path, why: Exception) -> None:
        self._unread.add(folder.name)
        _log.warning("visit %s waits for the next start, which tries again: %s", folder.name, why)
        self._premises.notes.note("visit-unread", folder=folder.name, why=str(why))

    def _reload(self, spool: Spool, saved: Saved) -> HostedVisit:
        admission, premises = saved.admission, self._premises
        visit = admission.visit
        spool.reload(saved)
        terms = premises.terms(admission.home)
        name, load = (terms.name, terms.load) if terms else (admission.name, LoadRules())
        hosted = HostedVisit(
            visit,
            home=admission.home,
            name=name,
            load=load,
            spool=spool,
            premises=premises,
            receipts=self._receipts,
            saved=saved,
        )
        hosted.is_logged.set()
        self._visits[admission.home, visit.id] = hosted
        if not hosted.is_over and terms and not terms.hours.contains(premises.wall()):
            self._defer(hosted, terms)
        self._tasks[hosted] = asyncio.create_task(_nothing() if hosted.is_over else self._carry_out(hosted))
        return hosted

    def _defer(self, hosted: HostedVisit, terms: Terms) -> None:
        """Lets a visit wait for its hours."""
        hosted.state = "waiting"
        hosted.defer()
        hosted.rest(outside(terms, self._premises.wall()))

    def check(self, visit: Visit, *, home: PublicKey, terms: Terms) -> bool:
        """Refused if the visit cannot be taken on; true if it has to wait for its hours."""
        limits = self._premises.limits
        under_way = self.under_way()
        if (home.text, visit.id) in self._visits:
            raise Refused("replayed", f"visit {visit.id} is here: resume it, or choose another name")
        self._check_unread(home, visit.id)
        here = [each for each in under_way if each.state != "waiting"]
        if self._is_closing or len(here) >= limits.crawlers_at_once + limits.queue:
            raise Refused("busy", "the queue is full", retry_after=RETRY_SECONDS)
        if self._premises.commons.are_full():
            raise Refused("busy", "the hosts of this machine are full", retry_after=RETRY_SECONDS)
        if sum(each.home == home.text for each in under_way) >= limits.visits_of_a_home:
            detail = f"your home has {limits.visits_of_a_home} visits here, the maximum"
            raise Refused("busy", detail, retry_after=RETRY_SECONDS)
        if sum(len(each.visit.starts) for each in under_way) + len(visit.starts) > MAX_STARTS_TOTAL:
            raise Refused("busy", "the visits here have too many start URLs", retry_after=RETRY_SECONDS)
        is_early = not terms.hours.contains(self._premises.wall())
        if is_early:
            self._check_deferral(visit, terms)
        return is_early

    def _check_deferral(self, visit: Visit, terms: Terms) -> None:
        """Refused if no more visits can wait for their hours."""
        limits, wall = self._premises.limits, self._premises.wall()
        waiting = [each for each in self.under_way() if each.state == "waiting"]
        size = sum(weight_of(each.visit) for each in waiting) + weight_of(visit)
        if len(waiting) >= limits.deferred or size > limits.deferred_bytes:
            begin = terms.hours.next_begin(wall)
            retry = RETRY_SECONDS if begin is None else begin - wall
            raise Refused("closed-now", "too many crawlers wait for their hours", retry_after=retry)

    def under_way(self) -> list[HostedVisit]:
        return [each for each in self._visits.values() if not each.is_over]

    def all(self) -> list[HostedVisit]:
        """All visits, also those that are over and kept."""
        return list(self._visits.values())

    def has_any(self, home: str) -> bool:
        """True if a visit of this home is under way, or parcels of one that is over are kept."""
        own = (hosted for (key, _), hosted in self._visits.items() if key == home)
        return any(not hosted.is_over or hosted.spool.kept_bytes for hosted in own)

    @property
    def kept_bytes(self) -> int:
        """The size of all parcels that wait for their homes."""
        return self._space.taken_bytes

    def find(self, home: str, visit: str) -> HostedVisit:
        """The visit that this home sent; Refused if it is not here, or another home's."""
        hosted = self._visits.get((home, visit))
        if hosted is None:
            self._check_unread(PublicKey.parse(home), visit)
            raise Refused("gone", f"there is no visit {visit} of yours")
        hosted.hear()
        return hosted

    def _check_unread(self, home: PublicKey, visit: str) -> None:
        """Refused for now if the visit lies here, but could not be read when the host started."""
        if _name(home, visit) in self._unread:
            detail = f"visit {visit} cannot be read until the host's owner has mended its disk"
            raise Refused("busy", detail, retry_after=RETRY_SECONDS)

    # -- early ends ----------------------------------------------------------------------------------------

    async def kill(self, hosted: HostedVisit, *, stopped: Problem | None = None) -> None:
        """Asks a visit to end, so that its results are kept; ends it by force if that takes too long.

        `stopped` tells its home why, if it is the owner who asks.
        """
        task = self._tasks[hosted]
        await hosted.is_logged.wait()
        hosted.mark_killed(stopped)
        if hosted.state in ("queued", "waiting"):
            task.cancel()
        await asyncio.wait({task}, timeout=KILL_SECONDS)
        task.cancel()
        await asyncio.wait({task})

    def kill_all(self, stopped: Problem | None) -> int:
        """Starts to kill all visits; returns their number."""
        visits = [each for each in self.under_way() if not each.is_killed]
        for hosted in visits:
            killing = asyncio.create_task(self.kill(hosted, stopped=stopped))
            self._killing.add(killing)
            killing.add_done_callback(self._killing.discard)
        return len(visits)

    def drop(self, hosted: HostedVisit) -> None:
        """Starts to end and forget a visit that is not kept, when its stream is over."""
        dropping = asyncio.create_task(self._drop(hosted))
        self._killing.add(dropping)
        dropping.add_done_callback(self._killing.discard)

    async def _drop(self, hosted: HostedVisit) -> None:
        if not hosted.is_over:
            await self.kill(hosted)
        key = (hosted.home, hosted.visit.id)
        if self._visits.get(key) is hosted:
            self._forget(key)

    async def wait_for_kills(self) -> None:
        await asyncio.gather(*self._killing, return_exceptions=True)

    async def dismiss(self, home: str, *, keeps_parcels: bool) -> int:
        """Ends the visits of a home; without `keeps_parcels` nothing of them is left. Their number."""
        own = [(key, hosted) for key, hosted in self._visits.items() if hosted.home == home]
        await asyncio.gather(*(self.kill(hosted) for _, hosted in own if not hosted.is_over))
        if not keeps_parcels:
            for key, hosted in own:
                if self._visits.get(key) is hosted:  # not swept meanwhile
                    self._forget(key)
        return len(own)

    def stop(self) -> None:
        """Asks all visits to pause for a restart, or to end if they are not kept; no other begins."""
        self._is_closing = True
        for hosted in self.under_way():
            hosted.stop.set()
            if hosted.state != "running":
                if self._may_go_on(hosted):
                    hosted.suspend()
                else:
                    self.give_up(hosted, "the host was stopped")

    def give_up(self, hosted: HostedVisit, why: str) -> None:
        """Ends a visit that is not at work; it may have been before a restart."""
        what = "did not begin" if hosted.account.began is None else "was ended"
        hosted.fail(problem("gone", f"the visit {what}: {why}"))
        self._tasks[hosted].cancel()

    async def close(self) -> None:
        self._is_closing = True
        tasks = [self._sweeping, *self._killing, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._premises.is_live_only:
            for key in list(self._visits):
                self._forget(key)
            shutil.rmtree(self._folder, ignore_errors=True)

    # -- one visit -----------------------------------------------------------------------------------------

    async def _carry_out(self, hosted: HostedVisit) -> None:
        """Raises only when cancelled: any other failure becomes the visit's problem."""
        redirect_rules(hosted.log)
        premises = self._premises
        try:
            await self._enter(hosted)
            await self._wait_for_turn(hosted)
            premises.announce(
                f"visit {hosted.visit.id} of {hosted.name}: crawler {hosted.visit.crawler.name!r} begins"
            )
            premises.notes.note("visit-began", **hosted.names)
            hosted.begin()
            async with self._workshop.use() as runtime:
                await runtime.carry_out(
                    hosted.rest_of_visit,
                    deliver=lambda parcel: self._keep(hosted, parcel),
                    stop=hosted.stop,
                    reins=hosted.reins,
                    through=lambda fetcher: ShieldedFetcher(fetcher, lambda: self._closed_to(hosted)),
                    parcels=hosted.spool.last,
                )
            if hosted.ended:
                hosted.finish()
            else:
                hosted.suspend()
        except asyncio.CancelledError:
            if self._may_go_on(hosted):
                hosted.suspend()
            else:
                hosted.fail(problem("gone", "the visit was killed"))
            raise
        except JailError as error:
            _log.error("visit %s: %s", hosted.visit.id, error)
            hosted.fail(problem("no-jail", "this machine cannot jail the crawler"))
        except StorageError as error:
            _log.error("visit %s ends: %s", hosted.visit.id, error)
            hosted.fail(problem("internal", "the host cannot write to its disk"))
        except Exception as error:
            detail = str(error) if isinstance(error, SternaError) else repr(error)
            _log.error("visit %s failed: %s", hosted.visit.id, detail, exc_info=error)
            hosted.fail(problem("internal", "the host failed; see its log"))
        finally:
            self.slots.leave(hosted)
            self._say_farewell(hosted)
            # The visit's loop refers to itself, and with it to all that the visit set out with.
            asyncio.get_running_loop().call_soon(gc.collect)
            self._has_garbage = True

    async def _enter(self, hosted: HostedVisit) -> None:
        """Writes down what a restart needs to go on with the visit, unless that was done."""
        try:
            log = hosted.spool.log
            if log and not log.size_bytes:
                at = self._premises.wall()
                admission = Admission(visit=hosted.visit, home=hosted.home, name=hosted.name, at=at)
                await asyncio.to_thread(log.begin, admission)
                hosted.spool.count_log()
                hosted.hear()
        finally:
            hosted.is_logged.set()

    def _may_go_on(self, hosted: HostedVisit) -> bool:
        """True if the host is stopping and a later process can go on with the visit."""
        return self._is_closing and not hosted.is_killed and bool(hosted.spool.log)

    async def _wait_for_turn(self, hosted: HostedVisit) -> None:
        """Returns when its hours have come, nothing makes it rest, and it has a slot."""
        while True:
            await hosted.reins.wait()
            hosted.state = "queued"
            await self.slots.take(hosted)
            if not hosted.reins.is_paused:
                return
            self.slots.leave(hosted)

    def _closed_to(self, hosted: HostedVisit) -> tuple[str, ...]:
        terms = self._premises.terms(hosted.home)
        return terms.closed if terms else self._premises.policy.closed

    async def _keep(self, hosted: HostedVisit, parcel: Parcel) -> None:
        """Takes a parcel; while the spool is full, the crawler is paused and another has its slot."""
        if parcel.ended is Ended.STOPPED and self._may_go_on(hosted):
            parcel = msgspec.structs.replace(parcel, ended=None)  # its checkpoint, from which it goes on
        terms = self._premises.terms(hosted.home)
        await asyncio.to_thread(self._premises.spend, PublicKey.parse(hosted.home), terms, parcel.usage)
        packed = await asyncio.to_thread(hosted.pack, parcel)
        while not hosted.spool.has_room(len(packed)):
            self.slots.leave(hosted)
            await hosted.spool.wait_for_room(len(packed))
            await self.slots.take(hosted)
        await hosted.keep(parcel, packed)

    def _say_farewell(self, hosted: HostedVisit) -> None:
        if hosted.is_suspended:
            self._premises.announce(f"visit {hosted.visit.id} of {hosted.name} goes on after a restart")
            self._premises.notes.note("visit-suspended", **hosted.names)
            return
        why = hosted.ended or (hosted.problem.detail if hosted.problem else "")
        counts = f"{hosted.usage.pages:,} pages, {hosted.spool.total_bytes:,} bytes before compression"
        self._premises.announce(f"visit {hosted.visit.id} of {hosted.name} is over ({why}): {counts}")
        is_whole = hosted.ending is not None and not hosted.is_killed
        usage = hosted.usage
        self._premises.notes.note(
            "visit-ended" if is_whole else "visit-killed",
            **hosted.names,
            ended=str(why),
            pages=usage.pages,
            requests=usage.requests,
            read_bytes=usage.bytes_received,
            sent_bytes=usage.sent_bytes,
            cpu_seconds=round(usage.cpu_seconds, 3),
            root=hosted.ending.root.hex() if hosted.ending else "",
        )

    # -- expiry --------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self._sweep_once()
            except (SternaError, OSError) as error:
                _log.error("cannot delete expired visits: %s", error)

    def _sweep_once(self) -> None:
        self._premises.notes.flush()
        if self._has_garbage:
            self._has_garbage = False
            give_back_memory()
        self._space.most_bytes = self._premises.limits.kept_bytes_total
        self.slots.hand_out()
        now = self._premises.clock.now()
        over = sorted((hosted.heard, key) for key, hosted in self._visits.items() if hosted.is_over)
        surplus = {key for _, key in over[: max(len(over) - MAX_KEPT, 0)]}
        for key, hosted in list(self._visits.items()):
            if now - hosted.heard > self._patience_with(hosted) or key in surplus:
                if not hosted.is_over:
                    _log.warning("visit %s expired: its home has not called", hosted.visit.id)
                    hosted.fail(problem("gone", "the visit expired"), "expired")
                self._forget(key)
            else:
                hosted.note_silence()

    def _patience_with(self, hosted: HostedVisit) -> float:
        """Seconds without hearing from its home after which a visit expires."""
        limits = self._premises.limits
        if hosted.state == "waiting":
            return LATE_SECONDS
        return limits.deferred_seconds if hosted.is_deferred else limits.kept_seconds

    def _forget(self, key: tuple[str, str]) -> None:
        hosted = self._visits.pop(key)
        self._tasks.pop(hosted).cancel()
        hosted.spool.delete()
        hosted.account.close()


def weight_of(visit: Visit) -> int:
    """The memory that a visit takes while it waits, in bytes, approximately."""
    starts = sum(len(target.url) + len(target.referrer) + START_BYTES for target in visit.starts)
    known = len(visit.known.fingerprints) + START_BYTES * len(visit.known.validators)
    facts = sum(len(data) + START_BYTES for _, data in visit.state.facts) + len(visit.state.memory)
    own = sum(len(data) + START_BYTES for data in visit.crawler.facts)
    rules = sum(len(source.text) for source in visit.crawler.program.rules)
    return starts + known + facts + own + rules


async def _nothing() -> None:
    """The work of a visit that is over."""


def _name(home: PublicKey, visit: str) -> str:
    """The folder of a visit."""
    return f"{home.id}-{visit}"
