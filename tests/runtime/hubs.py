"""Sites that are a start page with so many links, and what parcels tell of visits there."""

from tests.runtime.fakes import (
    BEGIN,
    SITE,
    Outcome,
    Script,
    linking,
)

from sterna.model import (
    Robots,
    RobotsState,
)
from sterna.web.politeness import site_key

KNOWN_RULES = Robots(RobotsState.QUALIFIED, tried_at=BEGIN)  # so that robots.txt is not asked for
SOON = 1.0


def hub(count: int) -> Script:
    """A start page with so many links, and the pages they lead to."""
    paths = [f"/{n}" for n in range(count)]
    return {"/": linking(*paths), **{path: linking() for path in paths}}


def holds_of(outcome: Outcome) -> dict[str, float]:
    """The site's hold as the parcels tell it, in seconds from the beginning."""
    holds = [hold for parcel in outcome.parcels for hold in parcel.holds if hold.key == site_key(SITE)]
    return {hold.key: round(hold.until - BEGIN, 3) for hold in holds}
