"""What a crawl is sent out with besides its options: a crawler, its limits, what home does with its facts.

It is kept in the ledger, so that the next run goes on alike.
"""

from typing import TYPE_CHECKING

from sterna.crawler.compiler import crawler_of_fields
from sterna.crawler.pack import PackedCrawler, decode, encode
from sterna.model import Crawler, Program

if TYPE_CHECKING:  # they take a tenth of a second, and a query needs none of them
    from sterna.home.options import Options

_DEFAULT = Crawler().name


def errand_of(options: "Options") -> PackedCrawler:
    """The default crawler, which keeps what the options say."""
    return PackedCrawler(crawler=crawler_of_fields(options.keep))


def choose_errand(
    given: PackedCrawler | None, before: PackedCrawler | None, options: "Options"
) -> PackedCrawler:
    """What is given now, else the collection's own crawler, else the default one."""
    if given:
        return given
    return before if before and before.crawler.name != _DEFAULT else errand_of(options)


def dump(errand: PackedCrawler) -> str:
    """The errand as the ledger's settings hold it."""
    return encode(errand).hex()


def load(text: str | None) -> PackedCrawler | None:
    """What dump() wrote."""
    return decode(bytes.fromhex(text)) if text else None


def asks_more(new: Program, old: Program) -> bool:
    """True if pages that the old program has seen must be read again for the new one."""
    if set(new.needs) - set(old.needs):
        return True
    return (new.select, new.rules, new.keep.selectors, new.keep.share) != (
        old.select,
        old.rules,
        old.keep.selectors,
        old.keep.share,
    )
