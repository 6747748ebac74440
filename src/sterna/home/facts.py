"""Facts of crawlers as rows, for the archive and for queries."""

from collections.abc import Iterable, Iterator, Sequence

from sterna.archive.manifest import FactRow
from sterna.crawler.facts import Fact, decode, to_json
from sterna.home.ledger.records import SiteFact
from sterna.model import Parcel


class Emitted:
    """The readable facts that rules sent home in some parcels, decoded each time they are iterated.

    Together and decoded they would take up to fifty times their bytes.
    """

    def __init__(self, parcels: Sequence[Parcel], *, crawler: str, received: float) -> None:
        self._parcels = parcels
        self._crawler = crawler
        self._received = received
        # Of each parcel; what cannot be read is rare, and reading is quick.
        self.unreadable = [sum(_fact(data) is None for data in parcel.rows) for parcel in parcels]

    def __len__(self) -> int:
        return sum(len(parcel.rows) for parcel in self._parcels) - sum(self.unreadable)

    def __iter__(self) -> Iterator[FactRow]:
        for each in self._parcels:
            for data in each.rows:
                row = _row(data, each.site, self._crawler, visit=each.visit, received=self._received)
                if row:
                    yield row


def own(facts: Iterable[SiteFact], *, crawler: str = "") -> list[FactRow]:
    """The facts that crawlers keep; unreadable ones are left out, and the next visit reports them."""
    rows = (_row(fact.data, fact.site, crawler) for fact in facts)
    return [row for row in rows if row]


def _row(
    data: bytes, site: str, crawler: str, *, visit: str = "", received: float | None = None
) -> FactRow | None:
    fact = _fact(data)
    if fact is None:
        return None
    return FactRow(
        crawler=crawler,
        site=site,
        visit=visit,
        template=fact.template,
        data=to_json(fact),
        received=received,
    )


def _fact(data: bytes) -> Fact | None:
    """None if the bytes are not a fact: a host may send anything."""
    try:
        return decode(data)
    except ValueError:
        return None
