"""Which part of a collection the tables show: some batches, one visit, crawlers of some names."""

from sterna.model import Record
from sterna.query.scan import literal


class Within(Record, frozen=True, kw_only=True):
    """What is None does not count; batches are those after one and up to another."""

    after: int | None = None
    upto: int | None = None
    visit: str | None = None
    crawler: str | None = None  # a pattern, as of file names

    @property
    def is_all(self) -> bool:
        """True if nothing is left out."""
        return self == Within()

    def condition(self) -> str:
        """Of rows of pages and facts, in SQL."""
        return _joined(self._of_any(), self.visit is not None and f"visit = {literal(self.visit or '')}")

    def link_condition(self) -> str:
        """Of rows of links, which do not say in which visit they came."""
        return _joined(self._of_any())

    def earlier_condition(self) -> str:
        """Of the pages that may have come before: later batches never change what an earlier one meant."""
        return _joined(self.upto is not None and f"coalesce(batch, 0) <= {self.upto:d}")

    def _of_any(self) -> str:
        return _joined(
            self.after is not None and f"coalesce(batch, 0) > {self.after:d}",
            self.upto is not None and f"coalesce(batch, 0) <= {self.upto:d}",
            self.crawler is not None and f"coalesce(crawler, '') GLOB {literal(self.crawler or '')}",
        )


def _joined(*conditions: str | bool) -> str:
    wanted = [condition for condition in conditions if isinstance(condition, str) and condition != "true"]
    return " AND ".join(wanted) or "true"
