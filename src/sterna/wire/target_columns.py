"""URLs to fetch, in columns; those of the visited site travel without its name."""

from collections.abc import Sequence

from sterna.errors import WireError
from sterna.model import Record, Target
from sterna.web.urls import MAX_URL_LENGTH, Canonical, site_of
from sterna.wire.columns import (
    ITEM,
    Numbers,
    Texts,
    pack_flags,
    pack_numbers,
    pack_texts,
    unpack_flags,
    unpack_numbers,
    unpack_texts,
)

MAX_TARGETS = 1_000_000  # of one kind in a parcel: a page may lead to as many as its sitemaps name
MAX_DEPTH = 2**31 - 1
MAX_PAUSE_SECONDS = 2 * 24 * 3600  # before a URL is tried again
_MAX_TRIES = 1000
_MAX_PRIORITY = 2**63 - 1

_canonical = Canonical(())  # what a crawler drops from its URLs is its own affair


class TargetColumns(Record, frozen=True, kw_only=True):
    """Targets as they travel."""

    count: int = 0
    urls: Texts = ""
    depths: Numbers = ()
    referrers: Texts = ""
    is_sitemap: bytes = b""
    hops: Numbers = ()
    attempts: Numbers = ()
    not_before: Numbers = ()  # in milliseconds
    priorities: Numbers = ()


def pack_targets(targets: Sequence[Target], site: str) -> TargetColumns:
    """The columns of these targets."""
    return TargetColumns(
        count=len(targets),
        urls=pack_texts([shorten(target.url, site) for target in targets]),
        depths=pack_numbers([target.depth for target in targets]),
        referrers=pack_texts([shorten(target.referrer, site) for target in targets]),
        is_sitemap=pack_flags((target.kind == "sitemap" for target in targets), usual=False),
        hops=pack_numbers([target.hops for target in targets]),
        attempts=pack_numbers([target.attempts for target in targets]),
        not_before=pack_numbers([milliseconds(target.not_before) for target in targets]),
        priorities=pack_numbers([target.priority for target in targets]),
    )


def unpack_targets(columns: TargetColumns, site: str, *, now: float) -> tuple[Target, ...]:
    """The targets; WireError if one cannot be."""
    count = columns.count
    if not 0 <= count <= MAX_TARGETS:
        raise WireError("malformed", f"{count} URLs in a parcel")
    latest = milliseconds(now + MAX_PAUSE_SECONDS)
    depths = unpack_numbers(columns.depths, count, least=0, most=MAX_DEPTH, name="depth")
    hops = unpack_numbers(columns.hops, count, least=0, most=_MAX_TRIES, name="number of redirects")
    attempts = unpack_numbers(columns.attempts, count, least=0, most=_MAX_TRIES, name="number of attempts")
    not_before = unpack_numbers(columns.not_before, count, least=0, most=latest, name="time of another try")
    priorities = unpack_numbers(
        columns.priorities, count, least=-_MAX_PRIORITY, most=_MAX_PRIORITY, name="priority"
    )
    kinds = unpack_flags(columns.is_sitemap, count, usual=False)
    return tuple(
        Target(url, depth, referrer, "sitemap" if is_sitemap else "page", hop, tries, at / 1000, priority)
        for url, depth, referrer, is_sitemap, hop, tries, at, priority in zip(
            unpack_urls(columns.urls, count, site),
            depths,
            unpack_referrers(columns.referrers, count, site),
            kinds,
            hops,
            attempts,
            not_before,
            priorities,
            strict=True,
        )
    )


def unpack_urls(column: Texts, count: int, site: str) -> list[str]:
    """The URLs of so many rows; WireError if one is not spelt as it should be."""
    urls = [lengthen(text, site) for text in unpack_texts(column, count)]
    for url in urls:
        check_url(url)
    return urls


def unpack_referrers(column: Texts, count: int, site: str) -> list[str]:
    """Where so many rows were found; many have the same, and some have none."""
    urls = [lengthen(text, site) for text in unpack_texts(column, count)]
    for url in set(urls):
        if url:
            check_url(url)
    return urls


def check_url(url: str) -> None:
    """WireError if a URL is not in its one spelling."""
    if len(url) > MAX_URL_LENGTH or _canonical(url) != url:
        raise WireError("malformed", f"{url[:200]!r} is not the one spelling of a URL")


def check_sites(targets: Sequence[Target], site: str, *, is_home: bool) -> None:
    """WireError if one of the targets is of another site, or of this one where it must not be."""
    for target in targets:
        if (site_of(target.url) == site) is not is_home:
            place = "another site" if is_home else "this site"
            raise WireError("malformed", f"{target.url[:200]!r} is a URL of {place}")


def shorten(url: str, site: str) -> str:
    """A URL of the site without its name."""
    path = url.removeprefix(site)
    return path if path.startswith("/") else url


def lengthen(text: str, site: str) -> str:
    """The URL that was shortened."""
    return site + text if text.startswith("/") else text


def shorten_lines(urls: str, site: str) -> str:
    """Each of the lines shortened."""
    return f"{ITEM}{urls}".replace(f"{ITEM}{site}/", f"{ITEM}/")[1:]


def lengthen_lines(texts: str, site: str) -> str:
    """Each of the lines as it was."""
    return f"{ITEM}{texts}".replace(f"{ITEM}/", f"{ITEM}{site}/")[1:]


def milliseconds(seconds: float) -> int:
    """A time as it travels."""
    return round(seconds * 1000)
