"""The plan of a repair: what a survey means, and what is to be done. It reads no files."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from sterna.archive.disk import ASIDE
from sterna.archive.examination import Examined
from sterna.archive.manifest import TABLES, WarcPosition
from sterna.archive.warc import OPEN
from sterna.home.folder import MARKER
from sterna.home.repair.choice import Choice, choose, torn_batches
from sterna.home.repair.records import Finding
from sterna.home.repair.survey import FoundWarc, Survey
from sterna.model import Record

LEDGER = "ledger.sqlite"
# Batches of a ledger that was lost may have had no rows, and followers have counted them: a ledger made anew
# goes on beyond all numbers that can have been given away.
GAP = 1_000_000
_LOST = (
    "states of robots.txt, and pauses that sites asked for (both are asked for again)",
    "crawlers under way at hosts, keys of hosts that were pinned, trust in hosts, and receipts",
    "the crawler and its rules, if it had a file (name it again), and what it remembered of sites",
    "counters of requests and bytes",
    "URLs that were done without being stored (the next crawl meets them again)",
)


class Base(StrEnum):
    """What the new ledger begins with."""

    COPY = "copy"  # all of the old one
    ROWS = "rows"  # that can still be read
    NOTHING = "nothing"


class Mend(StrEnum):
    """What is done to a WARC file."""

    NOTHING = "nothing"
    CUT = "cut"  # behind its last good record
    COPY = "copy"  # its good records
    DROP = "drop"


class WarcPlan(Record, frozen=True):
    """A WARC file, what is done to it, and what the ledger will say of it."""

    found: FoundWarc
    mend: Mend
    is_open: bool


class Plan(Record, frozen=True, kw_only=True):
    """What is to be done."""

    findings: tuple[Finding, ...]
    choice: Choice
    base: Base
    learnt: frozenset[str]  # segments whose rows the ledger does not know
    torn: frozenset[int]  # batches that lost links or facts
    has_lost_pages: bool
    warcs: tuple[WarcPlan, ...]
    has_lost_raw: bool
    batch: int
    needs_ledger: bool
    lost: tuple[str, ...]


def make_plan(survey: Survey, *, positions: int = 0) -> Plan:
    """What to do about a survey; `positions` is the farthest batch of any follower."""
    base = Base.COPY
    if survey.ledger.damage:
        base = Base.NOTHING if survey.ledger.is_empty else Base.ROWS
    named, retired = frozenset[str](), frozenset[str]()
    if base is Base.COPY:
        named, retired = frozenset(each.name for each in survey.ledger.segments), survey.ledger.retired
    choice = choose(survey.segments, named=named)
    choice = msgspec.structs.replace(
        choice, dropped=tuple(name for name in choice.dropped if name not in retired)
    )
    learnt = {*choice.kept, *choice.rewritten} - named
    is_changed = bool(choice.rewritten or survey.missing or named.intersection(choice.dropped))
    warcs = tuple(_warc_plan(found) for found in survey.warcs)
    batch = _next_batch(survey, base, positions=positions)
    findings = (
        *_of_ledger(survey, base),
        *_of_segments(survey, choice, learnt=learnt if base is Base.COPY else set()),
        *_of_warcs(survey, warcs, is_rebuilt=base is not Base.COPY),
        *(_stray(path.name, why) for path, why in survey.strays.items()),
        *_of_positions(survey, base, positions=positions),
    )
    has_warc_news = any(each.part == "warc" for each in findings)
    return Plan(
        findings=findings,
        choice=choice,
        base=base,
        learnt=frozenset(learnt),
        torn=frozenset(_torn(survey, choice, learnt=learnt)),
        has_lost_pages=base is not Base.NOTHING and "page" in _tables_with_losses(survey),
        warcs=warcs,
        has_lost_raw=base is not Base.COPY or has_warc_news,
        batch=batch,
        needs_ledger=not survey.is_new
        and bool(
            base is not Base.COPY or is_changed or learnt or has_warc_news or batch != survey.ledger.batch
        ),
        lost=_LOST if base is Base.NOTHING and survey.segments else (),
    )


def _next_batch(survey: Survey, base: Base, *, positions: int) -> int:
    """The number of the last batch as the ledger will have it."""
    known, last = survey.ledger.batch, survey.last_batch
    reached = max(known, last)
    if base is Base.COPY and last <= known + 1 and positions <= reached:  # at most what a crash left
        return reached
    return (max(reached, positions) // GAP + 1) * GAP


# --- what was lost


def _tables_with_losses(survey: Survey) -> set[str]:
    damaged = {each.table for each in survey.segments if each.damage and each.lost_rows != 0}
    return damaged | {each.table for each in survey.missing}


def _torn(survey: Survey, choice: Choice, *, learnt: set[str]) -> set[int]:
    """The batches whose links or facts are not all there, and so their pages are fetched again."""
    tables = _tables_with_losses(survey)
    said = torn_batches(survey.segments, choice=choice)
    new = {unit for each in survey.segments if each.name in learnt for unit in each.units}
    torn: set[int] = set()
    for table in TABLES[1:]:
        torn |= said[table] & new  # a crash between two segments of a batch leaves the first
        if table in tables:
            torn |= said[table] | _unlabelled(survey.segments, table)
    return torn


def _unlabelled(segments: tuple[Examined, ...], table: str) -> set[int]:
    """Batches of pages of which no label says what they brought, and of which this table has no rows."""
    told = {batch for each in segments for batch, _ in each.label.contents}
    there = {unit for each in segments if each.table == table for unit in each.units}
    pages = {unit for each in segments if each.table == "page" for unit in each.units}
    return pages - there - told


# --- findings, in the order in which they are told


def _of_ledger(survey: Survey, base: Base) -> Iterator[Finding]:
    if survey.marker:
        yield Finding("collection", MARKER, survey.marker, "made anew")
    count = len(survey.segments)
    anew = f"made anew from {count:,} segment{'s' * (count != 1)}"
    if base is Base.ROWS:
        yield Finding("ledger", LEDGER, survey.ledger.damage, f"{anew} and from what can be read of it")
    elif base is Base.NOTHING and not survey.is_new:
        yield Finding("ledger", LEDGER, survey.ledger.damage, anew)
    elif survey.is_behind:
        damage = f"it ends with batch {survey.ledger.batch:,}, the archive with batch {survey.last_batch:,}"
        yield Finding("ledger", LEDGER, damage, "what came later is added")


def _of_segments(survey: Survey, choice: Choice, *, learnt: set[str]) -> Iterator[Finding]:
    for each in survey.segments:
        if each.name in choice.rewritten:
            lost = "an unknown number" if each.lost_rows is None else f"{each.lost_rows:,}"
            rows = sum(each.units[unit] for unit in choice.rewritten[each.name])
            damage = each.damage or "some of its rows are in other segments too"
            yield Finding("segment", each.name, damage, f"{rows:,} rows kept, {lost} lost; moved to {ASIDE}/")
        elif each.name in choice.dropped:
            copied = "all of its rows are in other segments" if each.units else "it has no good row"
            yield Finding("segment", each.name, each.damage or copied, f"moved to {ASIDE}/")
        elif each.name in learnt:
            remedy = f"its {each.rows:,} rows are added"
            yield Finding("segment", each.name, "the ledger does not name it", remedy)
    for named in survey.missing:
        yield Finding("segment", named.name, "it is missing", f"{named.rows:,} rows are lost with it")


def _of_warcs(survey: Survey, plans: tuple[WarcPlan, ...], *, is_rebuilt: bool) -> Iterator[Finding]:
    for plan in plans:
        scanned, position = plan.found.scanned, plan.found.position
        if scanned.gaps:
            lost = sum(end - begin for begin, end in scanned.gaps)
            damage = f"{lost:,} of {scanned.size_bytes:,} bytes are damaged"
            remedy = f"{scanned.records:,} records kept, the rest moved to {ASIDE}/"
            yield Finding("warc", plan.found.path.name, damage, remedy)
        elif not scanned.records:
            yield Finding("warc", plan.found.path.name, "it has no good record", f"moved to {ASIDE}/")
        elif position is None and not is_rebuilt:
            remedy = f"its {scanned.records:,} records are added"
            yield Finding("warc", plan.found.path.name, "the ledger does not name it", remedy)
        elif position and position.committed_bytes != scanned.size_bytes:
            damage = f"it has {scanned.size_bytes:,} bytes, not {position.committed_bytes:,}"
            yield Finding("warc", plan.found.path.name, damage, f"its {scanned.records:,} records are kept")
    for missing in survey.missing_warcs:
        yield Finding(
            "warc", missing.name, "it is missing", "its pages are stored anew when they are refreshed"
        )


def _of_positions(survey: Survey, base: Base, *, positions: int) -> Iterator[Finding]:
    known = max(survey.ledger.batch, survey.last_batch)
    if base is Base.COPY and positions > known:  # a ledger made anew begins beyond all positions
        damage = f"it is at batch {positions:,}, the archive at batch {known:,}"
        yield Finding("position", "of a follower", damage, f"batches go on beyond {positions:,}")


def _stray(name: str, why: str) -> Finding:
    return Finding("file", name, why, f"moved to {ASIDE}/")


def _warc_plan(found: FoundWarc) -> WarcPlan:
    scanned = found.scanned
    is_open = found.path.name.endswith(OPEN) and bool(found.position and found.position.is_open)
    if not scanned.records:
        return WarcPlan(found, Mend.DROP, is_open)
    if not scanned.gaps:
        return WarcPlan(found, Mend.NOTHING, is_open)
    return WarcPlan(found, Mend.COPY if scanned.is_torn else Mend.CUT, is_open)


def positions_of(plans: tuple[WarcPlan, ...]) -> list[WarcPosition]:
    """The WARC files as the ledger will list them, once they are mended."""
    return [
        WarcPosition(plan.found.name, plan.found.scanned.size_bytes - _lost_bytes(plan), plan.is_open)
        for plan in plans
        if plan.mend is not Mend.DROP
    ]


def _lost_bytes(plan: WarcPlan) -> int:
    return sum(end - begin for begin, end in plan.found.scanned.gaps)
