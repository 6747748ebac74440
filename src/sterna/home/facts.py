"""Facts of crawlers as rows, for the archive and for queries."""

from collections.abc import Iterable

from sterna.archive.manifest import FactRow
from sterna.crawler.facts import decode, to_json
from sterna.home.ledger.records import SiteFact
from sterna.model import Parcel


def emitted(parcel: Parcel, *, crawler: str, received: float) -> tuple[list[FactRow], int]:
    """The facts that rules sent home, and the number of unreadable ones."""
    sent = [_row(data, parcel.site, crawler, visit=parcel.visit, received=received) for data in parcel.rows]
    rows = [row for row in sent if row]
    return rows, len(sent) - len(rows)


def own(facts: Iterable[SiteFact], *, crawler: str = "") -> list[FactRow]:
    """The facts that crawlers keep; unreadable ones are left out, and the next visit reports them."""
    rows = (_row(fact.data, fact.site, crawler) for fact in facts)
    return [row for row in rows if row]


def _row(
    data: bytes, site: str, crawler: str, *, visit: str = "", received: float | None = None
) -> FactRow | None:
    """None if the bytes are not a fact: a host may send anything."""
    try:
        fact = decode(data)
    except ValueError:
        return None
    return FactRow(
        crawler=crawler,
        site=site,
        visit=visit,
        template=fact.template,
        data=to_json(fact),
        received=received,
    )
