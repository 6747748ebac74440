"""Visits, parcels and a host's offer for the tests of home's decisions."""

from array import array
from collections.abc import Sequence

import msgspec

from sterna.model import (
    Budget,
    Checkpoint,
    Crawler,
    Ended,
    Etiquette,
    Known,
    Page,
    Parcel,
    Robots,
    Target,
    Usage,
    Validator,
    Visit,
)
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer
from sterna.wire.keys import Identity

SITE = "https://a.example"
HOST = Identity(b"h" * 32)
OFFER = Offer(site=SITE, key=HOST.public.text, endpoint=f"{SITE}/sterna")


def target(path: str, depth: int = 0, **fields: object) -> Target:
    return msgspec.structs.replace(Target(f"{SITE}{path}", depth), **fields)


def visit(
    *starts: Target, validated: Sequence[str] = (), done: Sequence[str] = (), **fields: object
) -> Visit:
    """A visit with these starts; home has the digests of pages at `validated`, those at `done` are over."""
    base: dict[str, object] = {
        "id": "v",
        "site": SITE,
        "part": "/",
        "epoch": 1,
        "crawler": Crawler(),
        "etiquette": Etiquette(),
        "starts": starts,
        "known": Known(
            array("q", sorted(fingerprint(f"{SITE}{path}") for path in done)).tobytes(),
            tuple(Validator(fingerprint(f"{SITE}{path}"), '"1"', digest=b"d" * 16) for path in validated),
        ),
        "budget": Budget(),
        "robots": Robots(),
    }
    return Visit(**{**base, **fields})  # type: ignore[arg-type]


def page(path: str, **fields: object) -> Page:
    url = f"{SITE}{path}"
    base: dict[str, object] = {"depth": 0, "fetched": 100.0, "status": 200, "digest": b"n" * 16}
    return Page(url=url, fingerprint=fingerprint(url), **{**base, **fields})  # type: ignore[arg-type]


def parcel(of: Visit, number: int = 1, *paths: str, ended: Ended | None = None, **fields: object) -> Parcel:
    """A parcel with a page at each path."""
    base: dict[str, object] = {
        "visit": of.id,
        "site": of.site,
        "part": of.part,
        "epoch": of.epoch,
        "number": number,
        "pages": tuple(map(page, paths)),
        "checkpoint": Checkpoint(),
        "usage": Usage(pages=len(paths), requests=len(paths), bytes_received=4_000 * len(paths)),
        "ended": ended,
    }
    return Parcel(**{**base, **fields})  # type: ignore[arg-type]
