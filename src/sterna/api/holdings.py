"""The tables of a crawler that is away: what its host says that it holds, to be queried here."""

import time

import pyarrow as pa

from sterna.api.query import ledger_tables, table_of
from sterna.archive.manifest import Batch
from sterna.archive.rows import fact_table, link_table, page_table
from sterna.home.facts import Emitted, own
from sterna.home.ledger.records import SiteFact, VisitRow
from sterna.model import Parcel, Visit
from sterna.query.engine import MEMORY_BYTES, TIME_LIMIT_SECONDS, Engine
from sterna.wire.holdings import Holdings, Waiting
from sterna.wire.known import marks_of
from sterna.wire.parcels import Unpacker


def open_holdings(
    visit: Visit,
    holdings: Holdings,
    *,
    place: str = "host",
    ahead_seconds: float = 0.0,
    memory_bytes: int = MEMORY_BYTES,
    seconds: float = TIME_LIMIT_SECONDS,
) -> Engine:
    """The tables page, link, fact, frontier and visit; WireError if a parcel is malformed.

    `ahead_seconds` is how far the host's clock is ahead of ours. Pages are those of parcels that home has not
    acknowledged.
    """
    parcels = _unpacked(visit, holdings, now=time.time() + ahead_seconds)
    pages = [(visit.site, page) for parcel in parcels for page in parcel.pages]
    name, count = visit.crawler.name, len(pages)
    batch = Batch(number=0, crawler=name, visits=(visit.id,) * count, again=(False,) * count)
    sent = list(Emitted(parcels, crawler=name, received=holdings.at))
    kept = own((SiteFact(visit.site, *each) for each in enumerate(holdings.facts)), crawler=name)
    kinds = pa.array(["row"] * len(sent) + ["own"] * len(kept), pa.string())
    facts = fact_table([*sent, *kept]).append_column("kind", kinds)
    return Engine(
        {},
        pages=page_table(pages, batch),
        extra={
            **ledger_tables((), [_row(visit, holdings, place)]),
            "link": link_table(pages),
            "fact": facts,
            "frontier": table_of(Waiting, holdings.waiting),
        },
        memory_bytes=memory_bytes,
        time_limit_seconds=seconds,
    )


def left_out(holdings: Holdings) -> str:
    """What exceeded the host's limit, in a line; empty if all is there."""
    report = holdings.report
    parcels = report.parcels - report.acknowledged - len(holdings.parcels)
    facts = holdings.facts_total - len(holdings.facts)
    missing = [f"{facts:,} facts"] if facts > 0 else []
    missing += [f"the oldest {parcels:,} parcels"] if parcels > 0 else []
    return f"{' and '.join(missing)} are left out: they exceed what the host sends at once" if missing else ""


def _unpacked(visit: Visit, holdings: Holdings, *, now: float) -> list[Parcel]:
    unpacker = Unpacker(visit, marks_of(visit.known))
    return [unpacker.unpack(packed, now=now) for packed in holdings.parcels]


def _row(visit: Visit, holdings: Holdings, place: str) -> VisitRow:
    report, usage = holdings.report, holdings.usage
    return VisitRow(
        visit=visit.id,
        site=visit.site,
        part=visit.part,
        epoch=visit.epoch,
        place=place,
        began=0.0,
        over=None,
        ended=report.ended or report.state,
        parcels=report.parcels,
        pages=usage.pages,
        requests=usage.requests,
        bytes_received=usage.bytes_received,
        kept=usage.kept,
        cpu_seconds=usage.cpu_seconds,
    )
