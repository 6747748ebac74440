"""Pages, visits and parcels as most tests need them; any field can be given by its name."""

from typing import Any

from sterna.home.ledger.records import Lease
from sterna.host.visiting.progress import Step, gone_of
from sterna.model import (
    Budget,
    Crawler,
    Etiquette,
    Known,
    Page,
    Parcel,
    Robots,
    Target,
    Visit,
)
from sterna.web.urls import fingerprint

SITE = "https://www.example.org"
NOW = 1_700_000_000.0


def page(path: str = "/", *, site: str = SITE, **fields: Any) -> Page:
    """A page that was fetched without trouble; `path` may be a whole URL."""
    url = path if "://" in path else site + path
    given: dict[str, Any] = {
        "url": url,
        "fingerprint": fingerprint(url),
        "depth": 0,
        "fetched": NOW,
        "status": 200,
    }
    return Page(**(given | fields))


def visit(*starts: Target, site: str = SITE, **fields: Any) -> Visit:
    """A visit from these URLs on, or from the front page if there are none."""
    given: dict[str, Any] = {
        "id": "v1",
        "part": "/",
        "epoch": 1,
        "crawler": Crawler(),
        "etiquette": Etiquette(),
        "starts": starts or (Target(f"{site}/"),),
        "known": Known(),
        "budget": Budget(),
        "robots": Robots(),
    }
    return Visit(site=site, **(given | fields))


def parcel(of: Visit | Lease | None = None, number: int = 1, **fields: Any) -> Parcel:
    """An empty parcel of a visit, which may be given by its lease."""
    of = of or visit()
    name = of.id if isinstance(of, Visit) else of.visit
    given: dict[str, Any] = {
        "visit": name,
        "site": of.site,
        "part": of.part,
        "epoch": of.epoch,
        "number": number,
    }
    return Parcel(**(given | fields))


def step(parcel: Parcel) -> Step:
    """The step of a parcel in the log of a host."""
    return Step(
        number=parcel.number,
        size_bytes=9,
        checkpoint=parcel.checkpoint,
        gone=gone_of(parcel),
        state=parcel.state,
        usage=parcel.usage,
        pages=0,
        peaks=(),
        began=1.0,
        worked_seconds=10.0 * parcel.number,
        at=2.0,
        robots=parcel.robots,
        holds=parcel.holds,
        ended=parcel.ended,
    )
