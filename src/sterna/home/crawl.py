"""One run of a crawl: composes dispatch, runtime, intake and archive around a collection."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field

import msgspec

from sterna.archive.disk import ignore_step
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.crawler import pack as crawler_pack
from sterna.crawler.pack import PackedCrawler
from sterna.errors import EngineEnded, RulesError
from sterna.home.aftermath import Aftermath, Gathering, Journey
from sterna.home.away.composition import Migration, open_carrier
from sterna.home.away.courier import call_back
from sterna.home.belief.quarantine import Quarantine
from sterna.home.dispatch import Borders, Carrier, Dispatch, Plan
from sterna.home.errand import asks_more, choose_errand
from sterna.home.errand import dump as dump_errand
from sterna.home.errand import load as load_errand
from sterna.home.folder import CollectionFolder
from sterna.home.intake import Intake, OnStep
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import UNDER_WAY, Counts
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, dump, host_name, is_private_name
from sterna.home.progress import Progress, Saved, Summary
from sterna.home.upkeep import Compaction, recover
from sterna.model import Crawler, Ended, Etiquette, Parcel, Program, Target, Visit
from sterna.runtime.cell.kernel import peak_memory_bytes
from sterna.runtime.runtime import Runtime, RuntimeConfig, open_runtime
from sterna.version import __version__
from sterna.web.clock import Clock, SystemClock
from sterna.web.urls import site_of

COUNT_SECONDS = 1.0
QUARANTINE = "waiting"  # the folder of parcels that wait for their check
DEFAULT_READERS = 2
SLOTS_PER_CONNECTION = 2  # a visit that waits for its site's delay needs no connection


def _go_on(parcels: tuple[Parcel, ...]) -> bool:
    return False


@dataclass(slots=True)
class Run:
    """The parameters of a run besides its options; tests inject clock and steps."""

    stop: asyncio.Event
    clock: Clock = field(default_factory=SystemClock)
    refresh_seconds: float | None = None
    max_seconds: float | None = None
    unblock: tuple[str, ...] = ()
    errand: PackedCrawler | None = None  # None: the collection's own
    is_jailed: bool | None = None  # None: if this machine can
    migration: Migration | None = None  # None: crawlers stay here
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = _go_on  # called after each commit; True stops the run
    on_step: OnStep = ignore_step


async def crawl(collection: CollectionFolder, options: Options, *, run: Run, progress: Progress) -> Summary:
    """Crawls until nothing is left, a limit is reached or the run is stopped."""
    with (
        collection.open_for_crawl(),
        closing(SqliteLedger(collection.ledger_path)) as ledger,
        ThreadPoolExecutor(1) as thread,
    ):
        home = _Home(collection, options, ledger=ledger, thread=thread, run=run, progress=progress)
        return await home.run()


class _Home:
    """The parts of one run, and its steps; run() once."""

    def __init__(
        self,
        collection: CollectionFolder,
        options: Options,
        *,
        ledger: Ledger,
        thread: Executor,
        run: Run,
        progress: Progress,
    ) -> None:
        self._collection = collection
        self._options = options
        self._ledger = ledger
        self._desk = LedgerDesk(ledger, thread)
        self._run = run
        self._progress = progress
        self._segments = SegmentStore(collection.segments_folder, on_step=run.on_step)
        self._warc = self._open_warc() if options.warc else None
        self._dispatch: Dispatch | None = None  # made once the runtime is open
        self._sends = run.migration is not None and not options.here

    async def run(self) -> Summary:
        self._recover()
        self._begin()
        config = self._runtime_config()
        async with open_runtime(config, self._run.clock) as runtime:
            await self._check_rules(runtime)
            runtime.restore(self._ledger.holds(now=self._run.clock.now()))
            intake = self._intake()
            async with self._open_carrier(runtime) as carrier:
                self._dispatch = self._make_dispatch(runtime, carrier, intake)
                ended = await self._work(self._dispatch, intake)
            readers_peak = runtime.peak_memory_bytes()
        if self._warc:
            self._ledger.set_warc_positions(self._warc.close())
        return self._summary(ended, readers_peak)

    # -- before ------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        recover(
            self._ledger,
            self._segments,
            warc=self._warc,
            limits=self._options.shared_limits(),
            delay_seconds=self._options.etiquette(__version__).delay_seconds,
            now=self._run.clock.now(),
        )

    def _begin(self) -> None:
        options, run, ledger = self._options, self._run, self._ledger
        now = run.clock.now()
        ledger.block(options.blocked_names())
        ledger.unblock([host_name("--unblock", name) for name in run.unblock])
        self._errand = self._take_errand()  # before seeding: its saved progress may contain the seeds
        seeds = options.seed_urls()
        ledger.seed(
            [Target(url) for url in seeds],
            now=now,
            private_sites=[site_of(url) for url in seeds if is_private_name(url)],
        )
        if run.refresh_seconds is not None:
            ledger.refresh(older_than=now - run.refresh_seconds, now=now)
        ledger.wake(now=now)
        ledger.set_setting("options", dump(options))
        self._borders = Borders(
            options.scope().stay, seed_sites=ledger.seed_sites(), blocked=ledger.blocked()
        )
        call_back(ledger, self._is_wanted, now=now)
        away = {row.visit for row in ledger.outbox(states=UNDER_WAY)}
        Quarantine(self._collection.folder / QUARANTINE).sweep(away)
        ledger.forgive_hosts(and_ask=options.require_host)  # each run tries failed hosts again
        self._note_counts(ledger.counts(now=now))

    def _take_errand(self) -> PackedCrawler:
        """The errand of this run; if it keeps more of pages than the last one, they are fetched whole."""
        before = load_errand(self._ledger.setting("errand"))
        errand = choose_errand(self._run.errand, before, self._options)
        if errand.progress.seen:
            errand = self._unpack_progress(errand, is_new=before is None)
        if before and asks_more(errand.crawler.program, before.crawler.program):
            self._ledger.forget_validators()
        if before and errand.crawler.program.rules != before.crawler.program.rules:
            self._ledger.forget_states()
        self._ledger.set_setting("errand", dump_errand(errand))
        return errand

    def _unpack_progress(self, errand: PackedCrawler, *, is_new: bool) -> PackedCrawler:
        """The errand without its progress, which goes into a new ledger; an existing one has its own."""
        if is_new:
            starts = [target.url for target in errand.progress.frontier] or self._options.seed_urls()
            self._ledger.restore(site_of(starts[0]), errand.progress, now=self._run.clock.now())
        return msgspec.structs.replace(errand, progress=crawler_pack.SavedProgress())

    def _is_wanted(self, visit: Visit) -> bool:
        """True if this run could have sent the visit, which is still at a host."""
        is_ours = visit.crawler.program == self._errand.crawler.program
        return self._sends and is_ours and self._borders.may_visit(visit.site)

    async def _check_rules(self, runtime: Runtime) -> None:
        """Loads the rules before anything is fetched; RulesError names file, line and construct."""
        for rules in (self._errand.crawler.program.rules, self._errand.gather):
            if not rules:
                continue
            try:
                engine = await runtime.engines.open(Program(rules=rules))
                await engine.close()
            except EngineEnded as error:
                if error.ended == Ended.RULES:
                    raise RulesError(error.detail) from error
                raise

    def _open_warc(self) -> WarcStore:
        agent = self._options.etiquette(__version__).user_agent
        return WarcStore(
            self._collection.warc_folder,
            software=f"Sterna/{__version__}",
            user_agent=agent,
            on_step=self._run.on_step,
        )

    # -- during ------------------------------------------------------------------------------------------

    def _runtime_config(self) -> RuntimeConfig:
        options = self._options
        return RuntimeConfig(
            connections=options.concurrency,
            readers=options.readers or DEFAULT_READERS,
            limits=options.shared_limits(),
            proxy=options.proxy,
            ca_file=options.ca_file,
            timeout_seconds=options.timeout,
            is_jailed=self._run.is_jailed,
        )

    def _open_carrier(self, runtime: Runtime) -> AbstractAsyncContextManager[Carrier]:
        return open_carrier(
            runtime,
            self._options,
            etiquette=self._etiquette(),
            migration=self._run.migration if self._sends else None,
            ledger=self._desk,
            clock=self._run.clock,
            progress=self._progress,
            quarantine=self._collection.folder / QUARANTINE,
        )

    def _etiquette(self) -> Etiquette:
        etiquette = self._options.etiquette(__version__)
        return msgspec.structs.replace(etiquette, blocked=tuple(sorted(self._ledger.blocked())))

    def _make_dispatch(self, runtime: Runtime, carrier: Carrier, intake: Intake) -> Dispatch:
        options, etiquette = self._options, self._etiquette()
        self._aftermath = self._make_aftermath(runtime)
        plan = Plan(
            crawler=self._crawler(),
            budget=self._errand.budget,
            etiquette=etiquette,
            slots=SLOTS_PER_CONNECTION * options.concurrency,
            max_pages=options.max_pages,
            # The crawl's own delay must not end it.
            wait_seconds=max(options.wait, 2 * etiquette.delay_seconds),
            allow_private=options.allow_private,
            may_visit=self._may_visit,
            between=self._aftermath.settle,
            facts=self._aftermath.facts,
        )
        return Dispatch(
            self._desk,
            carrier,
            plan=plan,
            clock=self._run.clock,
            deliver=intake.take,
            progress=self._progress,
            round_pages=self._ledger.counts(now=self._run.clock.now()).round_pages,
        )

    def _make_aftermath(self, runtime: Runtime) -> Aftermath:
        errand, ledger = self._errand, self._ledger
        return Aftermath(
            self._desk,
            journey=Journey(errand.journey, ledger) if errand.journey else None,
            gathering=Gathering(errand.gather, runtime.engines) if errand.gather else None,
            seed=self._seed,
            clock=self._run.clock,
        )

    def _may_visit(self, site: str) -> bool:
        return self._borders.may_visit(site) and self._aftermath.may_visit(site)

    def _seed(self, targets: Sequence[Target]) -> None:
        """Adds start URLs to the crawl; runs in the ledger's thread."""
        self._ledger.seed(targets, now=self._run.clock.now())
        self._borders.add(site_of(target.url) for target in targets)

    def _crawler(self) -> Crawler:
        """The errand's crawler with the scope of this run."""
        crawler = self._errand.crawler
        seed_sites = tuple(sorted(self._ledger.seed_sites()))
        scope = msgspec.structs.replace(
            self._options.scope(),
            subtrees=crawler.scope.subtrees,
            seed_sites=seed_sites if len(seed_sites) > 1 else (),
        )
        return msgspec.structs.replace(crawler, scope=scope, keeps_raw=self._options.warc)

    def _intake(self) -> Intake:
        return Intake(
            self._desk,
            self._segments,
            warc=self._warc,
            clock=self._run.clock,
            admit_outlink=self._borders.admits,
            on_commit=self._note_commit,
            crawler=self._errand.crawler.name,
            on_step=self._run.on_step,
        )

    def _note_commit(self, parcels: tuple[Parcel, ...]) -> None:
        self._progress.add(parcels)
        if self._run.on_parcels(parcels):
            self._run.stop.set()
        self._aftermath.note(parcels)
        if self._dispatch:
            self._dispatch.take_note(parcels)

    async def _work(self, dispatch: Dispatch, intake: Intake) -> str:
        """Runs dispatch to its end, with its services beside it; if one of them fails, the run fails."""
        with ThreadPoolExecutor(1) as merging:
            compaction = Compaction(self._desk, self._segments, clock=self._run.clock, thread=merging)
            main = asyncio.create_task(dispatch.run(self._run.stop))
            services = [
                asyncio.create_task(service)
                for service in (intake.run(), compaction.run(), self._count(), self._watch_time())
            ]
            try:
                await asyncio.wait({main, *services}, return_when=asyncio.FIRST_COMPLETED)
                for service in services:
                    if service.done():
                        service.result()
                return main.result()
            finally:
                for task in (main, *services):
                    task.cancel()
                await asyncio.gather(main, *services, return_exceptions=True)

    async def _watch_time(self) -> None:
        if self._run.max_seconds is not None:
            await self._run.clock.sleep(self._run.max_seconds)
            self._progress.note = f"--max-seconds {self._run.max_seconds:g} reached"
            self._run.stop.set()
        await asyncio.Event().wait()  # a service ends only by failing or by being cancelled

    async def _count(self) -> None:
        while True:
            self._note_counts(await self._desk.do(lambda ledger: ledger.counts(now=self._run.clock.now())))
            await asyncio.sleep(COUNT_SECONDS)

    def _note_counts(self, counts: Counts) -> None:
        self._progress.pending = counts.pending
        self._progress.sites = counts.sites
        self._progress.total_pages = counts.round_pages

    # -- after -------------------------------------------------------------------------------------------

    def _summary(self, ended: str, readers_peak: int) -> Summary:
        progress, now = self._progress, self._run.clock.now()
        counts = self._ledger.counts(now=now)
        seconds = now - progress.began
        return Summary(
            ended=self._why(ended),
            pages=progress.pages,
            requests=progress.requests,
            bytes_received=progress.bytes_received,
            errors=dict(sorted(progress.errors.items())),
            visits={"here": progress.visits["here"], "host": progress.visits["host"]},
            saved=Saved(crossed=progress.crossed, fetched=progress.fetched_at_hosts),
            seconds=round(seconds, 3),
            pages_per_second=round(progress.pages / seconds, 2) if seconds > 0 else 0.0,
            peak_memory_bytes=peak_memory_bytes() + readers_peak,
            unchanged=progress.unchanged,
            redirects=progress.redirects,
            sites=counts.sites,
            pending=counts.pending,
            waiting_sites=counts.waiting_sites,
            total_pages=counts.pages,
            next_turn=counts.next_turn,
            kept=progress.kept,
            rows=progress.rows,
            cpu_seconds=round(progress.cpu_seconds, 3),
            checked=progress.checked,
            collection=str(self._collection.folder),
        )

    def _why(self, ended: str) -> str:
        """Why the run ended: the crawler's own limit if it reached one, else what dispatch says."""
        if ended == "finished" and self._progress.limits:
            return self._progress.limits.most_common(1)[0][0]
        own = self._errand.options.get("max_pages")
        return "pages" if ended == "limit" and own == self._options.max_pages else ended
