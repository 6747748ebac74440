"""What the ledger keeps of believing hosts: a score for each, and the pages that were checked."""

from collections.abc import Sequence
from typing import Protocol

from sterna.model import Record, Usage


class TrustRow(Record, frozen=True, kw_only=True):
    """What is known of a host's honesty."""

    site: str
    key: str = ""  # of the host that earned it
    good: float = 0.0  # pages checked, as they counted at that time: see `trust.score`
    bad: float = 0.0
    at: float = 0.0
    until: float = 0.0  # no crawler is sent there before: it lied


class SampleRow(Record, frozen=True, kw_only=True):
    """A page that was checked from here."""

    visit: str
    url: str
    site: str
    verdict: str
    at: float
    detail: str = ""


class TrustBook(Protocol):
    """A part of the ledger; every call is one transaction."""

    def row(self, site: str) -> TrustRow | None:
        """What is known of the site's host; None if it was never checked."""

    def rows(self) -> list[TrustRow]: ...

    def set(self, row: TrustRow, samples: Sequence[SampleRow] = ()) -> None:
        """Replaces what was known, and adds what it was found by."""

    def forget(self, site: str) -> bool:
        """Forgets all of it, samples too; False if nothing was known."""

    def samples(self, site: str) -> list[SampleRow]:
        """The pages that were checked, the latest first."""

    def count(self, site: str, usage: Usage) -> None:
        """Counts the requests and bytes that a check took, as those of the crawl."""

    def put_back(self, site: str, *, since: float, now: float) -> int:
        """Has what was fetched since a time fetched again, whole; tells how many pages."""
