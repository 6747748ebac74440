"""One run of a crawl: composes dispatch, runtime, intake and archive around a collection."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom

import msgspec

from sterna.archive.disk import ignore_step
from sterna.archive.manifest import Origin
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.crawler.pack import PackedCrawler, SavedProgress, encode
from sterna.errors import EngineEnded, RulesError
from sterna.home.aftermath import Aftermath, Journey
from sterna.home.away.composition import Migration, open_carrier, open_transport
from sterna.home.away.courier import call_back
from sterna.home.away.line import cancel
from sterna.home.away.listings import Spared, all_spared, judge_listings
from sterna.home.belief.quarantine import Quarantine
from sterna.home.catching_up import CatchingUp
from sterna.home.changes import Changes, Errand, changes_between
from sterna.home.dispatch import Borders, Carrier, Dispatch, Plan
from sterna.home.errand import asks_more, choose_errand
from sterna.home.errand import load as load_errand
from sterna.home.folder import CollectionFolder
from sterna.home.intake import Drain, Intake, OnStep, never_full
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import NOTHING, UNDER_WAY, Counts
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, dump, host_name, is_private_name, load, settings_of
from sterna.home.pauses import note_pauses
from sterna.home.progress import Progress, Saved, Summary
from sterna.home.requisites import COLUMNS, targets
from sterna.home.requisites import crawler_of as requisites_crawler_of
from sterna.home.upkeep import keep_merging, recover, sign_of_age
from sterna.model import REQUISITES, Budget, Crawler, Ended, Parcel, Program, Target, Visit
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.cell.confined import Confined
from sterna.runtime.cell.kernel import memory_bytes
from sterna.runtime.runtime import Runtime, open_runtime
from sterna.version import __version__
from sterna.web.clock import Clock, SystemClock
from sterna.web.secrets import Secrets
from sterna.web.urls import Canonical, site_of

COUNT_SECONDS = 1.0
DEFAULT_READERS = 2
MOST_FRAME_BYTES = 64 << 20  # of rows from earlier runs; those of archive/frames have 16 MiB, or one row
CHANGING = "changing"  # the setting with errand and options that a run was changing to
SLOTS_PER_CONNECTION = 2  # a visit that waits for its site's delay needs no connection


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """The parameters of a run besides its options; tests inject clock and steps."""

    stop: asyncio.Event
    clock: Clock = field(default_factory=SystemClock)
    refresh_seconds: float | None = None
    max_seconds: float | None = None
    unblock: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()  # start URLs that the user gave now: they are asked for at once
    retry: bool = False  # whatever failed or waits is asked for at once
    errand: PackedCrawler | None = None  # None: the collection's own
    is_jailed: bool | None = None  # None: if this machine can
    secrets: Secrets = field(default_factory=Secrets)  # with any, all visits stay here
    despite_owner: bool = False  # crawl although owners of sites asked not to
    migration: Migration | None = None  # None: crawlers stay here
    # Called after each commit; True stops the run.
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = lambda parcels: False
    drain: Drain = never_full  # awaited after it, before more is committed
    on_step: OnStep = ignore_step
    say: Callable[[str], None] = _log.info  # what a changed errand means for what is stored


async def crawl(collection: CollectionFolder, options: Options, *, run: Run, progress: Progress) -> Summary:
    """Crawls until nothing is left, a limit is reached or the run is stopped."""
    is_new = not collection.folder.exists()
    try:
        with (
            collection.open_for_crawl(),
            closing(SqliteLedger(collection.ledger_path)) as ledger,
            reader_of(collection.segments_folder) as confined,
            ThreadPoolExecutor(1) as thread,
        ):
            collection.claim(ledger)
            desk = LedgerDesk(ledger, thread)
            home = _Home(collection, options, desk=desk, confined=confined, run=run, progress=progress)
            return await home.crawl()
    except RulesError:  # nothing was fetched: a collection that was made for them would keep their start URLs
        if is_new and not collection.has_archive():
            shutil.rmtree(collection.folder)
        raise


@contextmanager
def reader_of(folder: Path) -> Iterator[Confined]:
    """What reads the segments of earlier runs; at the end no thread waits for a process that hangs."""
    confined = Confined(folder, most_bytes=MOST_FRAME_BYTES)
    try:
        yield confined
    finally:
        confined.kill()


@dataclass(eq=False, repr=False)
class _Home:
    """The parts of one run, and its steps; crawl() once."""

    collection: CollectionFolder
    options: Options
    _: KW_ONLY
    desk: LedgerDesk
    confined: Confined  # reads the segments of earlier runs
    run: Run
    progress: Progress

    def __post_init__(self) -> None:
        collection, options, run = self.collection, self.options, self.run
        self._ledger = self.desk.ledger
        self._etiquette = options.etiquette(__version__)
        origin = Origin(collection.id(), settings_of(options, blocked=self._ledger.blocked()))
        self._segments = SegmentStore(
            collection.segments_folder, origin=origin, confined=self.confined, on_step=run.on_step
        )
        self._warc: WarcStore | None = None
        if options.warc:
            self._warc = WarcStore(
                collection.warc_folder,
                software=f"Sterna/{__version__}",
                user_agent=self._etiquette.user_agent,
                collection=collection.id(),
                on_step=run.on_step,
            )
        self._sends = run.migration is not None and not options.here and not run.secrets

    async def crawl(self) -> Summary:
        options, clock = self.options, self.run.clock
        limits = options.shared_limits()
        if reason := sign_of_age(self._ledger, self._segments):
            raise self.collection.lost(reason)
        recover(
            self._ledger,
            self._segments,
            warc=self._warc,
            limits=limits,
            delay_seconds=self._etiquette.delay_seconds,
            now=clock.now(),
        )
        began, listed = clock.now(), await self._listed()
        self._begin({site: each.pages for site, each in listed.items()})
        config = RuntimeConfig(
            connections=options.concurrency,
            readers=options.readers or DEFAULT_READERS,
            limits=limits,
            proxy=options.proxy,
            proxy_resolves=options.proxy_resolves,
            ca_file=options.ca_file,
            timeout_seconds=options.timeout,
            accept_language=options.accept_language,
            secrets=self._secrets(),
            is_jailed=self.run.is_jailed,
            reads_css=options.requisites,
        )
        async with open_runtime(config, clock) as runtime:
            await self._check_rules(runtime)
            runtime.restore(self._ledger.holds(now=clock.now()))
            self.progress.notices = runtime.notices
            async with open_carrier(
                runtime,
                options,
                etiquette=self._etiquette,
                migration=self.run.migration if self._sends else None,
                ledger=self.desk,
                clock=clock,
                progress=self.progress,
                quarantine=self.collection.waiting_folder,
            ) as carrier:
                ended = await self._work(runtime, carrier)
            if self.run.migration:
                warn = self.run.migration.warn
                await judge_listings(self.desk, listed, since=began, now=clock.now(), warn=warn)
            readers_peak = runtime.peak_memory_bytes()
        if self._warc:
            self._ledger.set_warc_positions(self._warc.close())
        note_pauses(self._ledger, self.progress.notices, now=clock.now())
        return self._summary(ended, readers_peak)

    def _secrets(self) -> Secrets:
        secrets = self.run.secrets
        sites = secrets.sites or frozenset(map(site_of, self.options.seed_urls()))
        return msgspec.structs.replace(secrets, sites=sites)

    # -- before ------------------------------------------------------------------------------------------

    async def _listed(self) -> Mapping[str, Spared]:
        """Pages that this run need not refresh, by site: their hosts' own indexes list them as unchanged."""
        options, run, clock = self.options, self.run, self.run.clock
        if not self._sends or not run.refresh_seconds:
            return {}
        async with open_transport(options, etiquette=self._etiquette, clock=clock) as transport:
            now = clock.now()
            listed = await all_spared(
                self.desk,
                transport,
                older_than=now - run.refresh_seconds,
                now=now,
                let_private=transport.let_private,
                allow_private=options.allow_private,
                random=SystemRandom(),  # hosts must not guess which pages are read anyway
            )
            self.progress.crossed = transport.bytes_sent + transport.bytes_received
            return listed

    def _begin(self, spared: Mapping[str, Collection[int]] = NOTHING) -> None:
        options, run, ledger = self.options, self.run, self._ledger
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
        ledger.ask_again(msgspec.structs.replace(options, seeds=run.asked).seed_urls(), now=now)
        if run.retry:
            ledger.retry(now=now, least_pause=self._etiquette.delay_seconds)
        elif options.ignore_robots or self._was_stricter():
            ledger.requalify(now=now)
        if run.refresh_seconds is not None:
            ledger.refresh(older_than=now - run.refresh_seconds, now=now, spared=spared)
        self._borders = Borders(
            options.scope().stay, seed_sites=ledger.seed_sites(), blocked=ledger.blocked()
        )
        self._anywhere = Borders("any", seed_sites=(), blocked=ledger.blocked())
        self._follow_changes()
        ledger.wake(now=now)
        self._etiquette = msgspec.structs.replace(self._etiquette, blocked=tuple(sorted(ledger.blocked())))
        call_back(ledger, self._is_wanted, now=now)
        away = {row.visit for row in ledger.outbox(states=UNDER_WAY)}
        Quarantine(self.collection.waiting_folder).sweep(away)
        if run.despite_owner:
            ledger.forget_owners(now=now)
        ledger.ask_owners(now=now, may_ask=self._sends)
        ledger.forgive_hosts(and_ask=options.require_host)  # each run tries failed hosts again
        self._note_counts(ledger.counts(now=now))

    def _was_stricter(self) -> bool:
        """True if sites may wait only because the runs before took a refused robots.txt for a ban."""
        return load(self._ledger.setting("options")).strict_robots and not self.options.strict_robots

    def _take_errand(self) -> PackedCrawler:
        """The errand of this run."""
        before = load_errand(self._ledger.setting("errand"))
        errand = choose_errand(self.run.errand, before, self.options)
        if errand.progress.seen:
            if before is None:  # an existing ledger has progress of its own
                starts = [target.url for target in errand.progress.frontier] or self.options.seed_urls()
                self._ledger.restore(site_of(starts[0]), errand.progress, now=self.run.clock.now())
            errand = msgspec.structs.replace(errand, progress=SavedProgress())
        return errand

    def _follow_changes(self) -> None:
        """Does what follows from another errand or scope than before, and remembers this one.

        If a run was killed meanwhile, the next one does it again, also for what that run had begun to do.
        """
        ledger, errand = self._ledger, self._errand
        begun = ledger.setting(CHANGING) or ""
        kept = [(ledger.setting("errand"), ledger.setting("options"))]
        before = [each for each in (*kept, tuple(begun.split(" ", 1))) if len(each) == 2 and each[0]]
        now = _as_compared(errand, self.options)
        packed, changes = encode(errand).hex(), Changes()
        for text, options in before:
            old = load_errand(text)
            assert old
            changes = changes.plus(changes_between(_as_compared(old, load(options)), now))
            if errand.crawler.program.rules != old.crawler.program.rules:
                ledger.forget_states()
            if asks_more(errand.crawler.program, old.crawler.program) and not changes.has_work:
                ledger.forget_validators()
        if changes.narrowed:
            narrowed = ", ".join(changes.narrowed)
            self.run.say(f"{narrowed} narrowed: fewer links are followed; stored pages stay")
        if changes.has_work:
            ledger.set_setting(CHANGING, f"{packed} {dump(self.options)}")
            CatchingUp(
                ledger,
                self._segments,
                errand=now,
                admits=self._borders.admits,
                now=self.run.clock.now(),
                say=self.run.say,
            ).run(changes)
        ledger.set_setting("errand", packed)
        ledger.set_setting("options", dump(self.options))
        ledger.set_setting(CHANGING, "")

    def _is_wanted(self, visit: Visit) -> bool:
        """True if this run could have sent the visit, which is still at a host."""
        is_ours = visit.crawler.program == self._errand.crawler.program
        return self._sends and is_ours and self._borders.may_visit(visit.site)

    async def _check_rules(self, runtime: Runtime) -> None:
        """Loads the rules before anything is fetched; RulesError names file, line and construct.

        Sites from which the crawler's rules start by themselves are start sites: home decides this here, and
        takes no host's word for it.
        """
        crawler, canonical = self._errand.crawler, Canonical()
        for rules, facts in ((crawler.program.rules, crawler.facts), (self._errand.gather, ())):
            if not rules:
                continue
            try:
                engine = await runtime.engines.open(Program(rules=rules), facts=facts)
                await engine.close()
            except EngineEnded as error:
                if error.ended == Ended.RULES:
                    raise RulesError(error.detail) from error
                raise
            if rules == crawler.program.rules:
                urls = (canonical(url) for url, _ in engine.first.follow)
                self._borders.add(site_of(url) for url in urls if url)

    # -- during ------------------------------------------------------------------------------------------

    def _make_dispatch(self, runtime: Runtime, carrier: Carrier, intake: Intake) -> Dispatch:
        options, clock, errand = self.options, self.run.clock, self._errand
        self._aftermath = Aftermath(
            self.desk,
            journey=Journey(errand.journey, self._ledger),
            gather=errand.gather,
            engines=runtime.engines,
            seed=self._seed,
            clock=clock,
        )
        plan = Plan(
            crawler=self._crawler(),
            budget=errand.budget,
            etiquette=self._etiquette,
            slots=SLOTS_PER_CONNECTION * options.concurrency,
            max_pages=options.max_pages,
            # The crawl's own delay must not end it.
            wait_seconds=max(options.wait, 2 * self._etiquette.delay_seconds),
            allow_private=options.allow_private,
            may_visit=lambda site: self._borders.may_visit(site) and self._aftermath.journey.may_visit(site),
            between=self._aftermath.settle,
            facts=lambda: self._aftermath.facts,
        )
        return Dispatch(
            self.desk,
            carrier,
            plan=plan,
            clock=clock,
            deliver=intake.take,
            progress=self.progress,
            round_pages=self._ledger.counts(now=clock.now()).round_pages,
        )

    def _seed(self, targets: Sequence[Target]) -> None:
        """Adds start URLs to the crawl; runs in the ledger's thread."""
        self._ledger.seed(targets, now=self.run.clock.now())
        self._borders.add(site_of(target.url) for target in targets)

    def _crawler(self) -> Crawler:
        """The errand's crawler with the scope of this run."""
        crawler = self._errand.crawler
        seed_sites = tuple(sorted(self._ledger.seed_sites()))
        scope = msgspec.structs.replace(
            self.options.scope(),
            subtrees=self.options.subtrees or crawler.scope.subtrees,
            seed_sites=seed_sites if len(seed_sites) > 1 else (),
        )
        return msgspec.structs.replace(crawler, scope=scope, keeps_raw=self.options.warc)

    def _note_commit(self, parcels: tuple[Parcel, ...]) -> None:
        self.progress.add(parcels)
        if self.run.on_parcels(parcels):
            self.run.stop.set()
        self._aftermath.note(parcels)
        self._dispatch.take_note(parcels)

    async def _work(self, runtime: Runtime, carrier: Carrier) -> str:
        """Runs dispatch to its end, with its services beside it; if one of them fails, the run fails."""
        clock = self.run.clock
        intake = Intake(
            self.desk,
            self._segments,
            warc=self._warc,
            clock=clock,
            admit_outlink=self._borders.admits,
            admit_requisite=lambda target: self._anywhere.may_visit(site_of(target.url)),
            on_commit=self._note_commit,
            crawler=self._errand.crawler.name,
            drain=self.run.drain,
            on_step=self.run.on_step,
        )
        self._dispatch = self._make_dispatch(runtime, carrier, intake)
        merging = keep_merging(self.desk, self._segments, clock=clock)
        main = asyncio.create_task(self._fetch(carrier, intake))
        services = [
            asyncio.create_task(service)
            for service in (intake.run(), merging, self._count(), self._watch_time())
        ]
        try:
            await asyncio.wait({main, *services}, return_when=asyncio.FIRST_COMPLETED)
            for service in services:
                if service.done():
                    service.result()
            return main.result()
        finally:
            await cancel(main, *services)

    async def _fetch(self, carrier: Carrier, intake: Intake) -> str:
        """Fetches the pages, then what they need; returns why the pages ended."""
        ended = await self._dispatch.run(self.run.stop)
        if self.options.requisites and ended != "stopped":
            counts = await self.desk.do(lambda ledger: ledger.counts(now=self.run.clock.now()))
            await self._seed_requisites()
            self._dispatch = self._requisites_dispatch(carrier, intake, counts)
            self.progress.note = "fetching what the pages need"
            await self._dispatch.run(self.run.stop)
            self.progress.note = ""
        return ended

    async def _seed_requisites(self) -> None:
        """Adds what the pages since the last time need."""
        upto, after, names = await self.desk.do(
            lambda ledger: (ledger.batch(), int(ledger.setting(REQUISITES) or -1), ledger.segments())
        )
        links = [each.name for each in names if each.table == "link"]
        pieces = targets(self._segments.arrivals(links, after=after, upto=upto, columns=COLUMNS))
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            found = [each for each in piece if self._anywhere.may_visit(site_of(each.url))]
            await self.desk.do(partial(self._add_requisites, found, after))
        await self.desk.do(partial(self._add_requisites, [], upto))

    def _add_requisites(self, found: Sequence[Target], upto: int, ledger: Ledger) -> None:
        ledger.seed_requisites(found, upto=upto, now=self.run.clock.now())

    def _requisites_dispatch(self, carrier: Carrier, intake: Intake, counts: Counts) -> Dispatch:
        options = self.options
        left = max(options.max_requisite_bytes - counts.round_requisite_bytes, 1)
        plan = Plan(
            crawler=requisites_crawler_of(self._crawler()),
            etiquette=self._etiquette,
            slots=SLOTS_PER_CONNECTION * options.concurrency,
            max_pages=options.max_requisites,
            max_bytes=options.max_requisite_bytes,
            part=REQUISITES,
            budget=Budget(fetched_bytes=left),
            wait_seconds=max(options.wait, 2 * self._etiquette.delay_seconds),
            allow_private=options.allow_private,
            may_visit=self._anywhere.may_visit,
        )
        return Dispatch(
            self.desk,
            carrier,
            plan=plan,
            clock=self.run.clock,
            deliver=intake.take,
            progress=self.progress,
            round_pages=counts.round_requisites,
            round_bytes=counts.round_requisite_bytes,
        )

    async def _watch_time(self) -> None:
        if self.run.max_seconds is not None:
            await self.run.clock.sleep(self.run.max_seconds)
            self.progress.note = f"--max-seconds {self.run.max_seconds:g} reached"
            self.run.stop.set()
        await asyncio.Event().wait()  # a service ends only by failing or by being cancelled

    async def _count(self) -> None:
        while True:
            self._note_counts(await self.desk.do(lambda ledger: ledger.counts(now=self.run.clock.now())))
            await asyncio.sleep(COUNT_SECONDS)

    def _note_counts(self, counts: Counts) -> None:
        self.progress.pending = counts.pending
        self.progress.sites = counts.sites
        self.progress.total_pages = counts.round_pages

    # -- after -------------------------------------------------------------------------------------------

    def _summary(self, ended: str, readers_peak: int) -> Summary:
        progress, usage, now = self.progress, self.progress.usage, self.run.clock.now()
        counts = self._ledger.counts(now=now)
        scope = self._crawler().scope
        # What hosts left out is not known, and from here only a few pages of theirs are fetched.
        has_borders = bool(scope.include or scope.exclude or scope.subtrees) and not progress.visits["host"]
        seconds = now - progress.began
        if ended == "finished" and progress.limits:  # the crawler's own
            ended = progress.limits.most_common(1)[0][0]
        elif ended == "limit" and self._errand.options.get("max_pages") == self.options.max_pages:
            ended = "pages"
        return Summary(
            ended=ended,
            pages=usage.pages,
            requests=usage.requests,
            bytes_received=usage.bytes_received,
            errors=usage.errors,
            visits={"here": progress.visits["here"], "host": progress.visits["host"]},
            saved=Saved(crossed=progress.crossed, fetched=progress.fetched_at_hosts),
            seconds=round(seconds, 3),
            pages_per_second=round(usage.pages / seconds, 2) if seconds > 0 else 0.0,
            peak_memory_bytes=memory_bytes(is_peak=True) + readers_peak,
            unchanged=usage.unchanged,
            redirects=usage.redirects,
            sites=counts.sites,
            pending=counts.pending,
            waiting_sites=counts.waiting_sites,
            total_pages=counts.pages,
            next_turn=counts.next_turn,
            kept=usage.kept,
            has_own_limit=bool(getattr(self._errand.budget, ended, 0)),
            rows=progress.rows,
            cpu_seconds=round(usage.cpu_seconds, 3),
            checked=progress.checked,
            unmet=dict(progress.unmet.most_common()),
            notes=dict(progress.notes),
            requisites=progress.requisites,
            requisite_bytes=progress.requisite_bytes,
            left_out=progress.notices.left_out if has_borders else 0,
            collection=str(self.collection.folder),
        )


def _as_compared(packed: PackedCrawler, options: Options) -> Errand:
    """The errand with the scope that its runs have."""
    crawler = packed.crawler
    scope = msgspec.structs.replace(options.scope(), subtrees=options.subtrees or crawler.scope.subtrees)
    return Errand(crawler.name, scope, crawler.program)
