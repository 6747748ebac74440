"""Whether a visit may work now, must rest or must end: its home's hours, the load, the day's ration. Pure."""

from datetime import datetime
from typing import Literal

from sterna.errors import Refused
from sterna.host.policy.hours import day_end
from sterna.host.policy.ration import Left
from sterna.host.policy.terms import Terms
from sterna.model import Record

LATE_SECONDS = 8 * 24 * 3600.0  # more than a week, after which any hours have come

BUSY = "the site is busy"


class Step(Record, frozen=True, kw_only=True):
    """What a visit does from now on."""

    does: Literal["work", "rest", "end"] = "work"
    why: str = ""  # as its home is told
    detail: str = ""  # as the owner is told besides
    is_outside_hours: bool = False


WORK = Step()


def check_open(terms: Terms, left: Left, *, wall: float, keeps: bool) -> None:
    """Refused if no crawler of this home may come now; `keeps`: it may come to wait for its hours."""
    if left.missing or left.visits <= 0:
        what = left.missing or "visits"
        detail = f"what the site gives a home in a day is used up ({what})"
        raise Refused("closed-now", detail, retry_after=day_end(wall, terms.zone) - wall)
    if not terms.hours.contains(wall) and not (keeps and terms.outside_hours == "keep"):
        begin = terms.hours.next_begin(wall)
        retry = LATE_SECONDS if begin is None else begin - wall
        raise Refused("closed-now", outside(terms, wall), retry_after=retry)


def decide(terms: Terms | None, left: Left, *, wall: float, busy: str) -> Step:
    """The next step of a visit that is here; `busy` says why the load forbids it to work, if it does."""
    if terms is None or terms.never:
        return Step(does="end", why="the site's owner does not allow it any more")
    if left.missing:
        return Step(does="end", why=f"the day's ration is used up ({left.missing})")
    if not terms.hours.contains(wall):
        keeps = terms.outside_hours == "keep"
        return Step(does="rest" if keeps else "end", why=outside(terms, wall), is_outside_hours=True)
    if busy:
        return Step(does="rest", why=BUSY, detail=busy)
    return WORK


def outside(terms: Terms, wall: float) -> str:
    """In words, when the hours of a home begin."""
    begin = terms.hours.next_begin(wall)
    if begin is None:
        return "outside its hours"
    return f"outside its hours, which begin {datetime.fromtimestamp(begin, terms.zone):%a %d %b %H:%M %Z}"
