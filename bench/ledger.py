"""The ledger at 1 to 100 million URLs, in 500 MB with the page cache counted: python -m bench.ledger.

A crawl without its network: visits are leased, carried out on a synthetic web and committed through the
production interface; only the ledger's own calls are timed. The web is that of bench.ledger_web.

Two figures are printed. *Links* are all links of the pages of a visit. *Checks* is the stricter one: what is
left of them when the runtime has dropped what its visit has met before and what home told it was done
(`Frontier`, the production code): the URLs in `found` and `outlinks`, each looked up by the ledger. Both are
divided by the time of all ledger calls: lease, judge, commit.

For each size: `grow` adds URLs, 20,000 in a transaction: by visits to the 32 largest sites, which have a
third of all and fetch a tenth of what they find, and as seeds to the others; `crawl` is measured, from
cold caches: sites in no order; the process then dies without closing, and `resume` opens the file as the next
crawl would; `bare` gives the same checks to a table of nothing but the same keys, a statement a commit.
Workers run in a memory cgroup (v1), so that the curve is the disk's and not the RAM's.
"""

import argparse
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from bench.ledger_web import SITES, Web, as_page, origin, page_number, site_at, site_number
from bench.ratios import settle

from sterna.home.dispatch import LEASES_AT_ONCE, VISIT_PAGES
from sterna.home.intake import MAX_BATCH
from sterna.home.ledger.records import Change, Lease
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Checkpoint, Ended, Hold, Parcel, Target, Usage
from sterna.runtime.frontier import Frontier
from sterna.runtime.packer import FULL_URLS
from sterna.web.politeness import site_key
from sterna.web.urls import fingerprint

LIMIT_BYTES = 500_000_000
SIZES = "1000000,3000000,10000000,30000000"
PARCEL_PAGES = 500  # a visit of ten minutes at a page a second has little more
CRAWL_SECONDS = 60.0  # of ledger time, at each size
COMMIT_URLS = 100_000  # more at once would need more memory than there is
BIG_SITES = 32  # the first to be visited in each phase
CGROUPS = Path("/sys/fs/cgroup/memory")

T = TypeVar("T")


class Meter:
    """Times calls, and adds up what they did."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.cpu_seconds = 0.0
        self.links = self.checks = self.new = self.pages = self.visits = 0
        self._read, self._written = disk_bytes()

    def __call__(self, name: str, call: Callable[..., T], *args: Any, **fields: Any) -> T:
        began, cpu = time.perf_counter(), time.process_time()
        result = call(*args, **fields)
        self.cpu_seconds += time.process_time() - cpu
        self.times.setdefault(name, []).append(time.perf_counter() - began)
        return result

    @property
    def seconds(self) -> float:
        return sum(map(sum, self.times.values()))

    def row(self) -> dict[str, float]:
        read, written = disk_bytes()
        row = {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "links": self.links,
            "checks": self.checks,
            "new": self.new,
            "pages": self.pages,
            "visits": self.visits,
            "read_mb": (read - self._read) / 1e6,
            "written_mb": (written - self._written) / 1e6,
        }
        for name, times in self.times.items():
            ordered = sorted(times)
            row[f"{name}_ms"] = 1e3 * ordered[len(ordered) // 2]
            row[f"{name}_p99_ms"] = 1e3 * ordered[len(ordered) * 99 // 100]
            row[f"{name}_worst_ms"] = 1e3 * ordered[-1]
            row[f"{name}_seconds"] = sum(ordered)
        return row


def disk_bytes() -> tuple[int, int]:
    """What this process has read from the disk, and what it has had written."""
    lines = Path("/proc/self/io").read_text().split("\n")
    counts = dict(line.split(": ") for line in lines if line)
    return int(counts["read_bytes"]), int(counts["write_bytes"])


# -- the workers -----------------------------------------------------------------------------------------


class Crawl:
    """Visits without a network, on the production ledger."""

    def __init__(self, folder: Path) -> None:
        self.web = Web(folder / "sizes")
        _put_big_sites_first(folder / "ledger.sqlite")
        self.ledger = SqliteLedger(folder / "ledger.sqlite")
        self.log = folder / "checks"
        self.now = time.time()
        self.visits = 0

    def grow(self, urls: int) -> Meter:
        """Brings the ledger to so many URLs, each site to its share."""
        meter, visited = Meter(), set[int]()
        if not self.web.sizes[0]:
            self._seed([site_at(rank) for rank in range(SITES)], 1, meter)
        for lease in islice(self._leases(meter), LEASES_AT_ONCE):
            site = site_number(lease.site)
            visited.add(site)
            for parcel in self._discoveries(lease, self.web.share(site, urls)):
                meter.new += len(parcel.checkpoint.found)
                self._commit([parcel], meter)
        self._seed((site for site in range(SITES) if site not in visited), urls, meter)
        self.web.save()
        return meter

    def crawl(self, seconds: float) -> Meter:
        """Visits pages with all their links."""
        meter, batch, committed = Meter(), list[Parcel](), 0
        with self.log.open("wb") as log:
            for lease in self._leases(meter):
                parcel, links = self._visit(lease)
                found = (*parcel.checkpoint.found, *parcel.outlinks)
                meter.links += links
                meter.checks += len(found)
                meter.pages += len(parcel.pages)
                meter.visits += 1
                marks = [(site_number(each.url), fingerprint(each.url)) for each in found]
                array("q", [len(found), *chain.from_iterable(marks)]).tofile(log)
                batch.append(parcel)
                if len(batch) >= MAX_BATCH or meter.checks - committed >= COMMIT_URLS:
                    self._commit(batch, meter)
                    batch, committed = [], meter.checks
                if meter.seconds > seconds:
                    break
        self._commit(batch, meter)
        self.web.save()
        return meter

    def _leases(self, meter: Meter) -> Iterator[Lease]:
        """Every site that is due, once."""
        now = self.now
        while True:
            ids = [f"{int(now):x}{self.visits + n:08x}" for n in range(LEASES_AT_ONCE)]
            self.visits += len(ids)
            leases = meter("lease", self.ledger.lease, ids, now=now, pages=VISIT_PAGES, max_depth=64)
            if not leases:
                return
            yield from leases

    def _commit(self, parcels: list[Parcel], meter: Meter) -> None:
        if parcels:
            for parcel in parcels:
                meter("judge", self.ledger.judge, parcel)
            meter("commit", self.ledger.commit, Change(parcels=tuple(parcels)), now=self.now + 1.0)

    def _seed(self, sites: Iterable[int], urls: int, meter: Meter) -> None:
        """Brings sites that are not visited to their share."""
        targets = self._rest(sites, urls)
        while some := list(islice(targets, FULL_URLS)):
            meter("seed", self.ledger.seed, some, now=self.now)
            meter.new += len(some)

    def _rest(self, sites: Iterable[int], urls: int) -> Iterator[Target]:
        for site in sites:
            for _ in range(self.web.sizes[site], self.web.share(site, urls)):
                yield self.web.target(site, self.web.new_page(site), "")

    def _discoveries(self, lease: Lease, size: int) -> Iterator[Parcel]:
        """Parcels of a visit that finds the rest of its site's share, and fetches a tenth of it."""
        site = site_number(lease.site)
        first = self.web.sizes[site]
        for number, start in enumerate(range(first, max(size, first + 1), FULL_URLS), 1):
            pages = range(start, min(start + FULL_URLS, size))
            found = tuple(self.web.target(site, page, lease.starts[0].url) for page in pages)
            is_last = start + FULL_URLS >= size
            yield self._parcel(lease, number, found, (), found[::10], is_last=is_last)
        self.web.sizes[site] = max(size, first)

    def _visit(self, lease: Lease) -> tuple[Parcel, int]:
        """One visit, and how many links its pages had."""
        site, links = site_number(lease.site), 0
        frontier = Frontier(lease.known.fingerprints, max_depth=64)
        for start in lease.starts:
            frontier.add(start, fingerprint(start.url))
        outside: dict[int, Target] = {}
        found: list[Target] = []
        fetched = lease.starts[:PARCEL_PAGES]
        for start in fetched:
            for other, page in self.web.links(site, page_number(start.url)):
                links += 1
                target = self.web.target(other, page, start.url)
                mark = fingerprint(target.url)
                if other != site:
                    outside.setdefault(mark, target)
                elif frontier.add(target, mark):
                    found.append(target)
        return self._parcel(lease, 1, tuple(found), tuple(outside.values()), fetched, is_last=True), links

    def _parcel(
        self,
        lease: Lease,
        number: int,
        found: tuple[Target, ...],
        outlinks: tuple[Target, ...],
        fetched: tuple[Target, ...],
        *,
        is_last: bool,
    ) -> Parcel:
        turn = self.now + 2.0 + self.web.random.random()
        return Parcel(
            visit=lease.visit,
            site=lease.site,
            part=lease.part,
            epoch=lease.epoch,
            number=number,
            pages=tuple(as_page(target, self.now) for target in fetched),
            outlinks=outlinks,
            checkpoint=Checkpoint(found=found),
            holds=(Hold(site_key(lease.site), turn),),
            delay_seconds=1.0,
            usage=Usage(requests=len(fetched), bytes_received=20_000 * len(fetched), pages=len(fetched)),
            ended=Ended.BUDGET if is_last else None,
        )


def _put_big_sites_first(path: Path) -> None:
    """Else they would have one visit in a hundred thousand, and none would be measured."""
    if path.exists():
        db = sqlite3.connect(path)
        origins = [(origin(site_at(rank)),) for rank in range(BIG_SITES)]
        sql = "UPDATE part SET turn = 0 WHERE turn > 0 AND site_id = (SELECT id FROM site WHERE origin = ?)"
        db.executemany(sql, origins)
        db.commit()
        db.close()


def grow(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    crawl = Crawl(folder)
    row = crawl.grow(args.size).row()
    crawl.ledger.close()
    return row


def crawl(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    crawl = Crawl(folder)
    row = crawl.crawl(args.crawl_seconds).row()
    row["urls"] = sum(crawl.web.sizes)
    row["file_mb"] = sum(each.stat().st_size for each in folder.glob("ledger.sqlite*")) / 1e6
    row["rss_mb"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    return row


def resume(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """What a crawl does with its ledger before it begins."""
    meter = Meter()
    ledger = meter("open", SqliteLedger, folder / "ledger.sqlite")
    now = time.time() + 100.0
    meter("recover", ledger.recover, now=now, least_pause=1.0)
    meter("wake", ledger.wake, now=now)
    meter("holds", ledger.holds, now=now)
    meter("counts", ledger.counts, now=now)
    meter("first", ledger.lease, [f"{now:.0f}"], now=now + 9.0, pages=VISIT_PAGES, max_depth=64)
    return meter.row()


def bare(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """The same checks against a table of nothing but keys."""
    path = folder / "bare.sqlite"
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
        db.execute(f"PRAGMA {pragma}")
    if args.size:
        db.execute("CREATE TABLE seen (site, mark, PRIMARY KEY (site, mark)) WITHOUT ROWID")
        db.execute("ATTACH ? AS ledger", (str(folder / "ledger.sqlite"),))
        db.execute("INSERT INTO seen SELECT site_id, fingerprint FROM ledger.known ORDER BY 1, 2")
        db.close()
        return {}
    ledger = sqlite3.connect(folder / "ledger.sqlite")
    ids = {site_number(origin): number for number, origin in ledger.execute("SELECT id, origin FROM site")}
    ledger.close()
    meter = Meter()
    for rows in _logged(folder / "checks", ids):
        meter("commit", _insert, db, rows)
        meter.checks += len(rows)
        if meter.seconds > args.crawl_seconds / 2:
            break
    return meter.row()


def _insert(db: sqlite3.Connection, rows: list[tuple[int, int]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows)
    db.execute("COMMIT")


def _logged(path: Path, ids: dict[int, int]) -> Iterator[list[tuple[int, int]]]:
    """The checks of one commit after the other."""
    with path.open("rb") as log:
        while True:
            rows: list[tuple[int, int]] = []
            for _ in range(MAX_BATCH):
                length = array("q", log.read(8))
                pairs = array("q", log.read(16 * length[0])) if length else array("q")
                rows += [(ids[site], mark) for site, mark in zip(pairs[::2], pairs[1::2], strict=True)]
            if not rows:
                return
            yield rows


# -- the parent ------------------------------------------------------------------------------------------


class Group:
    """A memory cgroup in which workers run one after the other."""

    def __init__(self) -> None:
        self._folder = CGROUPS / f"sterna-bench-{os.getpid()}"
        try:
            self._folder.mkdir()
            (self._folder / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        except OSError as error:
            sys.exit(f"bench.ledger needs root and the v1 memory controller at {CGROUPS}: {error}")

    def run(self, work: str, folder: Path, **options: float) -> dict[str, float]:
        """Runs one worker from cold caches; gives its row."""
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        (self._folder / "memory.max_usage_in_bytes").write_text("0")
        command = [sys.executable, "-m", "bench.ledger", "--folder", str(folder), "--work", work]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        began = time.perf_counter()
        output = subprocess.run(command, preexec_fn=self._join, stdout=subprocess.PIPE, check=True).stdout
        row: dict[str, float] = json.loads(output)
        peak = int((self._folder / "memory.max_usage_in_bytes").read_text())
        row |= {"peak_mb": peak / 1e6, "wall": time.perf_counter() - began}
        print(f"  {work} {json.dumps({k: round(v, 2) for k, v in row.items()})}", file=sys.stderr, flush=True)
        return row

    def _join(self) -> None:
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        self._folder.rmdir()


HEAD = (
    "| URLs | links/s | checks/s | bare table, checks/s | ratio | CPU us a check | new URLs/s growing"
    " | lease ms, median / worst | commit ms, median / p99 | resume s"
    " | KB read a check | MB read / written | file, MB | bytes a URL"
    " | peak MB, all / process |"
)


def check_rate(ran: dict[str, float]) -> float:
    return ran["checks"] / ran["seconds"]


def report(
    grown: dict[str, float], ran: dict[str, float], again: dict[str, float], bare: dict[str, float]
) -> str:
    checks = check_rate(ran)
    limit = check_rate(bare) if bare else math.nan
    cells = [
        f"{ran['urls']:,.0f}",
        f"{ran['links'] / ran['seconds']:,.0f}",
        f"{checks:,.0f}",
        f"{limit:,.0f}",
        f"{checks / limit:.2f}",
        f"{1e6 * ran['cpu_seconds'] / ran['checks']:.0f}",
        f"{grown['new'] / grown['seconds']:,.0f}",
        f"{ran['lease_ms']:.0f} / {ran['lease_worst_ms']:.0f}",
        f"{ran['commit_ms']:.0f} / {ran['commit_p99_ms']:.0f}",
        f"{again['seconds']:.2f}",
        f"{1e3 * ran['read_mb'] / ran['checks']:.2f}",
        f"{ran['read_mb']:,.0f} / {ran['written_mb']:,.0f}",
        f"{ran['file_mb']:,.0f}",
        f"{1e6 * ran['file_mb'] / ran['urls']:.0f}",
        f"{ran['peak_mb']:.0f} / {ran['rss_mb']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def measure(folder: Path, args: argparse.Namespace) -> None:
    group = Group()
    began = time.perf_counter()
    rows: list[str] = []
    ratios: dict[str, float] = {}
    try:
        for size in map(int, args.urls.split(",")):
            print(f"{size:,} URLs, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            grown = group.run("grow", folder, size=size)
            if not args.no_bare:
                group.run("bare", folder, size=size)
            ran = group.run("crawl", folder, crawl_seconds=args.crawl_seconds)
            again = group.run("resume", folder)
            limit: dict[str, float] = {}
            if not args.no_bare:
                limit = group.run("bare", folder, crawl_seconds=args.crawl_seconds)
                for path in folder.glob("bare.sqlite*"):
                    path.unlink()
            rows.append(report(grown, ran, again, limit))
            if limit:
                ratios[f"ledger / bare table, {size:,} URLs"] = check_rate(ran) / check_rate(limit)
            print("\n".join([HEAD, "|---" * HEAD.count(" | ") + "|---|", *rows]), flush=True)
            if time.perf_counter() - began > args.seconds:
                break
    finally:
        group.remove()
    settle("ledger", ratios, record=args.record)


WORKS = {"grow": grow, "crawl": crawl, "resume": resume, "bare": bare}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--urls", default=SIZES, help="sizes, one after the other")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no further size is begun after these")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/sterna-bench-ledger"))
    parser.add_argument("--crawl-seconds", type=float, default=CRAWL_SECONDS)
    parser.add_argument("--no-bare", action="store_true")
    parser.add_argument("--keep", action="store_true", help="do not delete the folder")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    parser.add_argument("--work", choices=list(WORKS), help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        print(json.dumps(WORKS[args.work](args.folder, args)), flush=True)
        os._exit(0)  # without closing anything, as a crash would
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        measure(args.folder, args)
    finally:
        if not args.keep:
            shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
