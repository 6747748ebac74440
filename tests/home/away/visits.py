"""Visits, parcels and a host's offer for the tests of home's decisions."""

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
from tests import making

from sterna.model import (
    Ended,
    Known,
    Parcel,
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


def target(path: str, depth: int = 0, **fields: Any) -> Target:
    return msgspec.structs.replace(Target(f"{SITE}{path}", depth), **fields)


def visit(*starts: Target, validated: Sequence[str] = (), done: Sequence[str] = (), **fields: Any) -> Visit:
    """A visit with these starts; home has the digests of pages at `validated`, those at `done` are over."""
    known = Known(
        array("q", sorted(fingerprint(f"{SITE}{path}") for path in done)).tobytes(),
        tuple(Validator(fingerprint(f"{SITE}{path}"), '"1"', digest=b"d" * 16) for path in validated),
    )
    given: dict[str, Any] = {"id": "v", "site": SITE, "starts": starts, "known": known}
    return making.visit(**(given | fields))


def parcel(of: Visit, number: int = 1, *paths: str, ended: Ended | None = None, **fields: Any) -> Parcel:
    """A parcel with a page at each path."""
    pages = tuple(making.page(path, site=SITE, digest=b"n" * 16) for path in paths)
    usage = Usage(pages=len(paths), requests=len(paths), bytes_received=4_000 * len(paths))
    return making.parcel(of, number, ended=ended, **({"pages": pages, "usage": usage} | fields))
