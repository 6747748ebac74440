"""Judges who knocks: allowed, meant for this site, fresh, and what it is granted."""

import math

import msgspec

from sterna.errors import Refused
from sterna.host.policy.ration import Left
from sterna.host.policy.terms import Terms, granted
from sterna.model import Budget
from sterna.wire.handshake import Hello

SKEW_SECONDS = 120.0  # between the clocks of home and host


def judge(hello: Hello, *, site: str, terms: Terms | None, now: float) -> Budget:
    """What the home is granted; Refused tells why it is nothing. Whether its nonce is new, others must know.

    A stranger is told that it is one before anything else, so that it learns nothing of the host's clock.
    """
    if hello.audience != site:
        raise Refused("wrong-audience", f"this is the host of {site}")
    if terms is None:
        raise Refused("unknown-home", "the site's owner has not allowed this key")
    if terms.never:
        raise Refused("refused", "the site's owner takes no crawlers of this home")
    if not abs(hello.time - now) <= SKEW_SECONDS:  # the other way round a NaN would pass
        raise Refused("stale", "the clocks differ too much, or the request is old", time=now)
    return granted(hello.wants, terms.caps)


def rationed(budget: Budget, left: Left) -> Budget:
    """The budget with no more pages than are left of the day; the rest of the ration ends a visit later."""
    if math.isinf(left.pages):
        return budget
    return msgspec.structs.replace(budget, pages=min(budget.pages, int(left.pages)))
