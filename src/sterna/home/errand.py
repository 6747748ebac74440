"""The errand of a crawl: its crawler with limits and gathering rules, kept in the ledger for the next run."""

from typing import TYPE_CHECKING

from sterna.crawler.compiler import crawler_of_fields
from sterna.crawler.pack import PackedCrawler, decode
from sterna.model import Crawler, Program

if TYPE_CHECKING:  # importing them takes a tenth of a second, and queries do not need them
    from sterna.home.options import Options

_DEFAULT = Crawler().name


def errand_of(options: "Options") -> PackedCrawler:
    """The default crawler, which keeps the fields that the options name."""
    return PackedCrawler(crawler=crawler_of_fields(options.keep))


def choose_errand(
    given: PackedCrawler | None, before: PackedCrawler | None, options: "Options"
) -> PackedCrawler:
    """The errand given to this run, else the collection's own crawler, else the default one."""
    if given:
        return given
    return before if before and before.crawler.name != _DEFAULT else errand_of(options)


def load(text: str | None) -> PackedCrawler | None:
    """The errand as the ledger's setting of this name keeps it, in hexadecimal digits."""
    return decode(bytes.fromhex(text)) if text else None


def asks_more(new: Program, old: Program) -> bool:
    """True if pages that the old program has seen must be read again for the new one."""
    before, now = ((each.select, each.rules, each.keep.selectors, each.keep.share) for each in (old, new))
    return before != now or not set(new.needs) <= set(old.needs)
