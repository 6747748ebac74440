"""The records of a repair: what was found, what became of it, and how far the work is."""

from dataclasses import dataclass

from sterna.model import Record


class Finding(Record, frozen=True, array_like=False):
    """Something that is damaged, and what is done about it."""

    part: str  # collection, ledger, segment, warc, index, position or file
    name: str
    damage: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.part} {self.name}: {self.damage}; {self.remedy}"


class Repaired(Record, frozen=True, array_like=False, kw_only=True):
    """The result of a repair."""

    collection: str
    is_dry_run: bool
    findings: tuple[Finding, ...] = ()
    lost: tuple[str, ...] = ()  # what nothing could restore, in words
    pages_again: int = 0  # which the next crawl fetches, because something of them was lost


@dataclass(slots=True)
class RepairProgress:
    """How far the work is; changed by its thread, and read by others."""

    what: str = ""
    done: int = 0
    total: int = 0

    def begin(self, what: str, total: int = 0) -> None:
        self.what, self.done, self.total = what, 0, total
