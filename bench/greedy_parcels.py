"""Parcels as large as home takes them, each of another thing to excess, for `bench.greedy_host`.

Those of lists are put together from their bytes: what a host packs by the rules would be split before.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from tests import making

from sterna.crawler.facts import Fact, Symbol, encode
from sterna.model import Checkpoint, Links, Page, Parcel, Raw, Target, Usage
from sterna.web.urls import fingerprint
from sterna.wire import parcels
from sterna.wire.records import PageColumns, TargetColumns

MILLION = 1_000_000
URLS = 450_000  # of one visit that home takes, about
MOST_BYTES = 25 * 1024 * 1024
_WORDS = "tern " * 200_000  # a megabyte

Fields = dict[str, Any]  # of a parcel as it travels
Fill = Callable[[str, int], Parcel | Fields]  # a parcel of a site, with its number


# --- pages, packed as a host packs them


def wide_texts(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"text": f"\N{BIRD}{number} " + 6 * _WORDS})


def long_texts(site: str, number: int) -> Parcel:
    text = f"{number} " + 12 * _WORDS
    return _parcel(site, number, {"text": text}, {"text": text})


def long_html(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"html": f"{number} " + 24 * _WORDS})


def too_wide(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"text": f"\N{BIRD}{number} " + 40 * _WORDS})


def raw_responses(site: str, number: int) -> Parcel:
    body = (f"{number} " + 24 * _WORDS).encode()
    return _parcel(site, number, {"raw": Raw(b"", b"HTTP/1.1 200 OK\r\n\r\n", body, "127.0.0.1")})


def many_links(site: str, number: int) -> Parcel:
    links = Links("\n".join(f"{site}/{n}" for n in range(10_000)))
    return _parcel(site, number, *({"links": links} for _ in range(80)))


def _parcel(site: str, number: int, *pages: dict[str, object]) -> Parcel:
    made: list[Page] = []
    for place, fields in enumerate(pages):
        made.append(
            making.page(f"/{number}/{place}", site=site, fetched=time.time(), digest=bytes(16), **fields)
        )
    return Parcel(
        visit="",
        site=site,
        part="",
        epoch=0,
        number=number,
        pages=tuple(made),
        checkpoint=Checkpoint(found=tuple(Target(page.url) for page in made)),
        usage=Usage(pages=len(made)),
    )


# --- facts


def short_facts(site: str, number: int) -> Fields:
    """A million facts of two values each."""
    return {"rows": _array(encode(Fact("seen", (number, n % 100))) for n in range(MILLION))}


def least_facts(site: str, number: int) -> Fields:
    """A million that are no facts: empty ones."""
    return {"rows": _array(b"" for _ in range(MILLION))}


def long_facts(site: str, number: int) -> Fields:
    """One fact of four million symbols, and one of a million texts."""
    symbols = encode(Fact("seen", (Symbol("a"),) * 4 * MILLION))
    texts = encode(Fact("seen", tuple(f"{n:07}" for n in range(MILLION))))
    return {"rows": (symbols, texts)}


def facts_of_many_values(site: str, number: int) -> Fields:
    """A thousand facts of 8,000 symbols each."""
    fact = encode(Fact("seen", (Symbol("a"),) * 8_000))
    return {"rows": (fact,) * 1_000}


def own_facts(site: str, number: int) -> Fields:
    """A million facts that the crawler keeps, others in each parcel."""
    fact = encode(Fact("seen", (1, 2)))
    numbers = range(number * MILLION, (number + 1) * MILLION)
    return {"state": [_array((each, fact) for each in numbers), [], None]}


def same_own_facts(site: str, number: int) -> Fields:
    """The same million of them in each parcel."""
    fact = encode(Fact("seen", (number, 2)))
    return {"state": [_array((each, fact) for each in range(MILLION)), [], None]}


def most_own_facts(site: str, number: int) -> Fields:
    """As many in two parcels as a crawler may keep, and in the others as many instead."""
    fact = encode(Fact("seen", (number, 2)))
    numbers = range(number % 2 * MILLION, number % 2 * MILLION + 135_000)
    return {"state": [_array((each, fact) for each in numbers), [], None]}


def full_parcels_of_own_facts(site: str, number: int) -> Fields:
    """As many as a parcel carries, others in each."""
    fact = encode(Fact("seen", (number, 2)))
    numbers = range(number * MILLION, number * MILLION + 400_000)
    return {"state": [_array((each, fact) for each in numbers), [], None]}


def own_facts_gone(site: str, number: int) -> Fields:
    return {"state": [[], _array(range(2**32, 2**32 + MILLION)), None]}


def large_memory(site: str, number: int) -> Fields:
    return {"state": [[], [], bytes([number]) * MOST_BYTES]}


# --- URLs


def short_found(site: str, number: int) -> Fields:
    """A million at once, which no visit may find."""
    return {"found": _targets(f"/{number}/{n}" for n in range(MILLION))}


def most_found(site: str, number: int) -> Fields:
    """As many as a visit may find."""
    return {"found": _targets(f"/{n}" for n in range(URLS))} if number == 1 else {}


def found_in_parts(site: str, number: int) -> Fields:
    """The same, in parcels that home takes."""
    return {"found": _targets(f"/{number}/{n}" for n in range(URLS // 5))} if number <= 5 else {}


def again_in_parts(site: str, number: int) -> Fields:
    """As many to be tried again as a parcel carries, others in each."""
    later = tuple(int(time.time() * 1000) for _ in range(URLS // 5))
    return {"again": _targets((f"/{number}/{n}" for n in range(URLS // 5)), not_before=later)}


def long_found(site: str, number: int) -> Fields:
    """As many of 2 kB as there is room for."""
    return {"found": _targets(f"/{number}/{n:08}" + 1_980 * "x" for n in range(MOST_BYTES // 4_020))}


def long_referrers(site: str, number: int) -> Fields:
    count = MOST_BYTES // 4_020
    referrers = "\0".join(f"/{n:08}" + 1_980 * "x" for n in range(count))
    return {"found": _targets((f"/{number}/{n}" for n in range(count)), referrers=referrers)}


def short_outlinks(site: str, number: int) -> Fields:
    """As many other sites as a visit may find."""
    return {"outlinks": _targets(f"http://{n}.x/" for n in range(URLS))} if number == 1 else {}


def outlinks_in_parts(site: str, number: int) -> Fields:
    urls = (f"http://{number}-{n}.x/" for n in range(URLS // 5))
    return {"outlinks": _targets(urls)} if number <= 5 else {}


def million_outlinks(site: str, number: int) -> Fields:
    return {"outlinks": _targets(f"http://{number}-{n}.x/" for n in range(MILLION))}


def short_again(site: str, number: int) -> Fields:
    """A million to be tried again."""
    later = tuple(int(time.time() * 1000) for _ in range(MILLION))
    return {"again": _targets((f"/{number}/{n}" for n in range(MILLION)), not_before=later)}


def million_done(site: str, number: int) -> Fields:
    return {"done": b"".join(n.to_bytes(8, "big") for n in range(MILLION))}


def sitemaps_done(site: str, number: int) -> Fields:
    """As many sitemaps as a visit may have, found in three parcels and done in the fourth."""
    count = 95_000
    if number <= 3:
        urls = (f"/{number}/{n}" for n in range(count))
        return {"found": _targets(urls, is_sitemap=b"\1" * count)}
    marks = (fingerprint(f"{site}/{parcel}/{n}") for parcel in (1, 2, 3) for n in range(count))
    return {"done": b"".join(each.to_bytes(8, "big", signed=True) for each in marks)} if number == 4 else {}


# --- pages of which almost nothing came


def failed_pages(site: str, number: int) -> Fields:
    """100,000 pages that failed."""
    return _pages(number, 100_000, errors="\0".join(["timeout"] * 100_000))


def some_failed_pages(site: str, number: int) -> Fields:
    """As many as a parcel carries."""
    return _pages(number, 80_000, errors="\0".join(["timeout"] * 80_000))


def some_full_pages(site: str, number: int) -> Fields:
    return full_pages(site, number, count=25_000)


def full_pages(site: str, number: int, *, count: int = 100_000) -> Fields:
    """Pages with something in each field."""
    short = "\0".join(f"{n:05}" for n in range(count))
    columns = ("types", "titles", "texts", "languages", "modified", "etags", "descriptions", "htmls")
    lists = ("keywords", "headings")
    return _pages(
        number,
        count,
        statuses=(404,) * count,
        depths=tuple(range(300, 300 + count)),
        sizes=tuple(range(300, 300 + count)),
        headers="\0".join(["name\nvalue"] * count),
        link_urls="\0".join(f"/{n}" for n in range(count)),
        link_texts=short,
        **dict.fromkeys((*columns, *lists), short),
    )


def some_keywords(site: str, number: int) -> Fields:
    return short_keywords(site, number, count=360_000)


def short_keywords(site: str, number: int, *, count: int = MILLION) -> Fields:
    """A page with so many keywords, headings and headers each."""
    words = "\n".join(["ab"] * count)
    return _pages(number, 1, keywords=words, headings=words, headers=words)


def apart_keywords(site: str, number: int) -> Fields:
    """The same, not joined, and extracts, as many as there is room for."""
    words = msgspec.Raw(b"\x91" + _array(["a"] * 3_300_000))
    named = msgspec.Raw(b"\x91" + _array([("a", ("b",))] * MILLION))
    return _pages(number, 1, keywords=words, headings=words, headers=words, extracts=named)


def many_kinds_of_errors(site: str, number: int) -> Fields:
    """A thousand kinds of errors in each parcel, others each time."""
    errors = {f"e{number}_{n}_{'x' * 40}": 1 for n in range(1_000)}
    return {"usage": [0, 0, 0, 0, 0, errors, 0, 0.0, 0]}


# --- as they travel


def _array(items: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(list(items)))


def _targets(urls: Any, **columns: Any) -> list[Any]:
    joined = "\0".join(urls)
    given = {"count": joined.count("\0") + 1, "urls": joined} | columns
    return _columns(TargetColumns, given)


def _pages(number: int, count: int, **columns: Any) -> Fields:
    urls = "\0".join(f"/{number}/{n}" for n in range(count))
    given = {
        "count": count,
        "urls": urls,
        "fetched": (int(time.time() * 1000), *(0,) * (count - 1)),
        "digest_kinds": bytes(count),
    }
    return {"pages": _columns(PageColumns, given | columns)}


def _columns(kind: type[Any], given: Fields) -> list[Any]:
    usual = kind()
    return [given.get(name, getattr(usual, name)) for name in kind.__struct_fields__]


def packed(fields: Fields, **header: Any) -> bytes:
    """The parcel of these fields; `header` says of which visit."""
    given = header | fields
    usual = parcels._Packed(visit="", part="", epoch=0, number=1)
    return msgspec.msgpack.encode([given.get(name, getattr(usual, name)) for name in _NAMES])


_NAMES = parcels._Packed.__struct_fields__
