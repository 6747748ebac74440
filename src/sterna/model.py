"""The frozen records everyone speaks: Visit, Target, Page, Link, Parcel, Budget, Usage ..."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat
from typing import Annotated, Literal, TypeVar, get_args, get_type_hints

import msgspec

Stay = Literal["site", "domain", "any"]
TargetKind = Literal["page", "sitemap"]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The common base: immutable, slotted, an array on the wire."""


# --- marks: how a field travels and how it is stored is said where the field is declared

ColumnType = Literal[
    "text", "texts", "hex", "status", "int32", "int64", "time", "date", "headers", "extracts"
]


@dataclass(frozen=True, slots=True)
class Sent:
    """A field that travels: by which codec of `wire/records`, in which columns (names, a space between)."""

    codec: str
    columns: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A field that `archive/rows` stores in a column of its name."""

    type: ColumnType
    after: str = ""  # the column that it follows, where that is not the field before it
    is_optional: bool = False  # only some crawlers bring it, and segments of the others lack it


_Mark = TypeVar("_Mark", Sent, Stored)


def marked(record: type[Record], mark: type[_Mark]) -> dict[str, _Mark]:
    """The fields of a record that have such a mark, in their order."""
    hints = get_type_hints(record, include_extras=True)
    return {
        name: each
        for name, hint in hints.items()
        for each in getattr(hint, "__metadata__", ())
        if isinstance(each, mark)
    }


class Scope(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """Where a crawler may go: `stay` decides between sites, the rest within one."""

    stay: Stay = "site"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    subtrees: tuple[str, ...] = ()  # paths: only what lies below one of them
    max_depth: int = 64
    drop_params: tuple[str, ...] = ()
    use_sitemaps: bool = True
    seed_sites: tuple[str, ...] = ()  # links to these are reported even where the crawl stays on its sites


class RobotsTimes(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """How long a robots.txt counts, and when it is asked for again if it could not be fetched."""

    keep_seconds: float = 24 * 3600.0  # RFC 9309 2.4
    retry_hours: tuple[float, ...] = (
        1.0,
        4.0,
        12.0,
        24.0,
    )  # after each failure in a row; the last repeats
    max_failures: int = 8  # in a row; after these the site is given up
    pause_seconds: float = 2.0  # before all addresses are asked a second time


class Etiquette(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """How a crawler behaves towards one site."""

    user_agent: str = "Sterna"
    robots_name: str = "Sterna"  # its name in robots.txt
    sender: str = ""
    delay_seconds: float = 1.0
    response_factor: float = 5.0
    max_delay_seconds: float = 60.0
    connections: int = 1
    obey_robots: bool = True
    strict_robots: bool = False  # only 400, 404 and 410 mean that there are no rules
    robots_times: RobotsTimes = RobotsTimes()
    blocked: tuple[str, ...] = ()  # hostnames and domains that must not be contacted
    outside_agent: str = ""  # at a host: the User-Agent that its home has elsewhere, as the home says


Scalar = str | int | float | bool | None

# What of a page can be read, tested and kept, besides its address and what the server said of it.
Field = Literal[
    "title", "description", "keywords", "headings", "text", "language", "links", "html", "headers"
]
FIELDS: tuple[Field, ...] = get_args(Field)
DEFAULT_FIELDS: tuple[Field, ...] = ("title", "text", "language", "links")


def fields_among(names: Iterable[str]) -> tuple[Field, ...]:
    """The names that are fields, without duplicates and in a fixed order."""
    wanted = set(names)
    return tuple(field for field in FIELDS if field in wanted)


class Predicate(Record, frozen=True):
    """A condition on a page as it travels: an operator, what it is about, its values and its parts."""

    op: str
    column: str = ""
    values: tuple[Scalar, ...] = ()
    parts: tuple["Predicate", ...] = ()


class Selector(Record, frozen=True):
    """A CSS selector with a name; the texts of what it finds are kept, or the values of an attribute."""

    name: str
    css: str
    attribute: str = ""


class Keep(Record, frozen=True, kw_only=True):
    """Remote page filtering: what of a page travels home besides its address."""

    fields: tuple[Field, ...] = DEFAULT_FIELDS
    selectors: tuple[Selector, ...] = ()
    share: float = 1.0  # of text and html, from their beginning (Fiedler-Hammer 5.3)


class Source(Record, frozen=True):
    """A file of rules: its name, for messages, and its text."""

    name: str
    text: str


class Program(Record, frozen=True, kw_only=True):
    """What a crawler does where the pages are: data, made from a spec."""

    prune: Predicate | None = None  # on what is known before a fetch: a URL that fails it is not fetched
    select: Predicate | None = None  # remote page selection: a page that fails it is not kept
    keep: Keep = Keep()
    rules: tuple[Source, ...] = ()
    needs: tuple[Field, ...] = DEFAULT_FIELDS  # whatever selecting, keeping and the rules read
    is_best_first: bool = False  # rules give priorities, which come before depth
    drives_loading: bool = False  # only what rules load is fetched; links are not followed by themselves
    least_change: float = 0.0  # 0 to 1: a known page of which less changed counts as unchanged


class Crawler(Record, frozen=True, array_like=False, kw_only=True):
    """The program that travels, with its scope and the facts it sets out with."""

    name: str = "default"
    scope: Scope = Scope()
    program: Program = Program()
    facts: tuple[bytes, ...] = ()  # each as `crawler.facts` writes it
    keeps_raw: bool = False
    author: str = ""  # the public key of who signed name and program, if anybody did
    signature: bytes = b""


class Target(Record, frozen=True):
    """A URL to fetch, and how it was found."""

    url: Annotated[str, Sent("url", "urls")]
    depth: Annotated[int, Sent("depth", "depths")] = 0
    referrer: Annotated[str, Sent("referrer", "referrers")] = ""
    kind: Annotated[TargetKind, Sent("is_sitemap", "is_sitemap")] = "page"
    hops: Annotated[int, Sent("redirects", "hops")] = 0  # redirects that led here, one after the other
    attempts: Annotated[int, Sent("attempts", "attempts")] = 0
    not_before: Annotated[float, Sent("not_before", "not_before")] = 0.0
    priority: Annotated[int, Sent("priority", "priorities")] = 0  # higher ones first


class Validator(Record, frozen=True):
    """What lets a page that is known be asked for only if it changed."""

    fingerprint: int
    etag: str = ""
    modified: str = ""
    digest: bytes = b""  # or its first bytes, where it came over the network
    has_raw: bool = False  # its response is in a WARC file, to which a revisit can refer
    likeness: bytes = b""  # of its text, where the crawler asks how much a page changed


class Known(Record, frozen=True):
    """What is known of a site (the Crawlets paper's F)."""

    fingerprints: bytes = b""  # sorted signed 64-bit integers, not to be fetched in this visit
    validators: tuple[Validator, ...] = ()  # of those start URLs that were fetched before


class RobotsState(StrEnum):
    """Agarwal 3.4: state of a site after the last attempt to fetch its robots.txt."""

    UNKNOWN = "unknown"
    QUALIFIED = "qualified"
    DISQUALIFIED = "disqualified"


class Robots(Record, frozen=True):
    """A site's robots.txt as last tried: persistent date, failure count, rules."""

    state: RobotsState = RobotsState.UNKNOWN
    tried_at: float = 0.0  # the paper's robots date
    failures: int = 0  # successive
    retry_at: float = 0.0
    rules: bytes = b""
    reason: str = ""


class Hold(Record, frozen=True):
    """No request under `key` (a site, an address, a domain, all) may start before `until`."""

    key: str
    until: float


class Budget(Record, frozen=True, kw_only=True):
    """What a visit may use before it must end."""

    pages: int = 2_000
    seconds: float = 600.0
    urls: int = 200_000  # found in the visit and held in its memory
    patience_seconds: float = 60.0  # a longer wait for the site's delay ends the visit
    depth: int = 64  # the deepest page to fetch; what lies deeper is only reported
    requests: int = 0  # of this and what follows 0 stands for no limit
    fetched_bytes: int = 0
    sent_bytes: int = 0  # before compression
    wall_seconds: float = 0.0  # unlike `seconds` the crawler's own limit, after which home does not go on
    cpu_seconds: float = 0.0  # of reading pages and of the engine
    memory_bytes: int = 0  # of the engine, as are those below
    scratch_bytes: int = 0
    facts: int = 0

    @property
    def has_own_limits(self) -> bool:
        """True if the crawler itself has limits, which all its visits to a site share."""
        return any(getattr(self, name) for name in _OWN_LIMITS)

    def lesser(self, other: "Budget") -> "Budget":
        """The lesser of the two in every field; where 0 stands for no limit, the other one holds."""
        fields: dict[str, float] = {}
        for name in self.__struct_fields__:
            limits = [getattr(self, name), getattr(other, name)]
            if name not in _COUNTED:
                limits = [limit for limit in limits if limit > 0]
            fields[name] = min(limits, default=0)
        return msgspec.structs.replace(self, **fields)

    def minus(self, usage: "Usage", *, seconds: float) -> "Budget":
        """What is left of the crawler's own limits; never 0, which would stand for no limit."""
        used = {
            "requests": usage.requests,
            "fetched_bytes": usage.bytes_received,
            "sent_bytes": usage.sent_bytes,
            "wall_seconds": seconds,
            "cpu_seconds": usage.cpu_seconds,
        }
        left = {
            name: max(limit - used[name], _LEAST_SECONDS if name.endswith("_seconds") else 1)
            for name in _OWN_LIMITS
            if (limit := getattr(self, name))
        }
        return msgspec.structs.replace(self, **left)


# Fields in which 0 is a number like any other; in the rest it stands for no limit.
_COUNTED = frozenset({"pages", "seconds", "urls", "patience_seconds", "depth"})
_OWN_LIMITS = ("requests", "fetched_bytes", "sent_bytes", "wall_seconds", "cpu_seconds")
_LEAST_SECONDS = 1e-9


class Usage(Record, frozen=True, kw_only=True):
    """What was used, since the last parcel."""

    requests: int = 0
    bytes_received: int = 0
    pages: int = 0
    unchanged: int = 0
    redirects: int = 0
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    kept: int = 0  # of the pages, those that were wanted
    cpu_seconds: float = 0.0  # of readers and engine
    sent_bytes: int = 0  # before compression

    def plus(self, other: "Usage") -> "Usage":
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__struct_fields__
            if name != "errors"
        }
        kinds = sorted({*self.errors, *other.errors})
        errors = {kind: self.errors.get(kind, 0) + other.errors.get(kind, 0) for kind in kinds}
        return msgspec.structs.replace(self, errors=errors, **sums)

    def apart(self) -> "Usage":
        """The usage of a visit for what pages need, beside those for pages: it counts no pages."""
        count = sum(self.errors.values())
        errors = {"requisite": count} if count else {}
        return msgspec.structs.replace(self, pages=0, kept=0, unchanged=0, redirects=0, errors=errors)


class State(Record, frozen=True):
    """What a crawler remembers between two pages: its own facts, numbered, and its memory."""

    facts: tuple[tuple[int, bytes], ...] = ()
    memory: bytes = b""  # globals and scratch store, as the engine writes them


class Visit(Record, frozen=True, kw_only=True):
    """One trip of one crawler to one site or a part of it."""

    id: str
    site: str
    part: str
    epoch: int
    crawler: Crawler
    etiquette: Etiquette
    starts: tuple[Target, ...]
    known: Known
    budget: Budget
    robots: Robots
    holds: tuple[Hold, ...] = ()
    state: State = State()  # of an earlier visit that this one continues
    may_be_private: bool = False  # this site: the user named it by a private address
    allow_private: bool = False  # whatever a redirect leads to, too
    within: tuple[str, ...] = ()  # parts as `urls.parts_of` names them: what lies elsewhere is only reported
    closed: tuple[str, ...] = ()  # path prefixes that the site's owner closed: not fetched from here


class StateChange(Record, frozen=True):
    """What became of a crawler's state since the last parcel."""

    added: tuple[tuple[int, bytes], ...] = ()
    removed: tuple[int, ...] = ()
    memory: bytes | None = None  # None where it is as it was


REQUISITES = "requisites"  # the part of a site that is no page, but shown or run by pages

# The rels of links to what a page shows or runs, which is no page itself. `srcset` is an image of which usual
# screens show another size; `css` is what the page's own CSS names.
MEDIA_RELS = frozenset({"css", "font", "icon", "img", "media", "script", "srcset", "stylesheet"})


class Link(Record, frozen=True):
    """A link of a page, absolute and canonical."""

    url: str
    text: str = ""
    rel: str = ""


class Links(Record, frozen=True):
    """The links of a page in columns of lines: so they travel and are stored without an object for each.

    URLs, texts and rels hold no line breaks; a column that ends early is empty from there on. Links to pages
    come first, then those to media.
    """

    urls: str = ""
    texts: str = ""
    rels: str = ""

    @classmethod
    def of(cls, *links: Link) -> "Links":
        columns = ((link.url for link in links), (link.text for link in links), (link.rel for link in links))
        urls, texts, rels = ("\n".join(column) for column in columns)
        return cls(urls, texts.rstrip("\n"), rels.rstrip("\n"))

    def __len__(self) -> int:
        return self.urls.count("\n") + 1 if self.urls else 0

    def to_pages(self) -> list[str]:
        """The URLs of links to pages."""
        urls = self.urls.split("\n") if self.urls else []
        rels = self.rels.split("\n")
        while urls and len(urls) <= len(rels) and rels[len(urls) - 1] in MEDIA_RELS:
            urls.pop()
        return urls

    def __iter__(self) -> Iterator[Link]:
        if self.urls:
            texts = chain(self.texts.split("\n"), repeat(""))
            rels = chain(self.rels.split("\n"), repeat(""))
            yield from map(Link, self.urls.split("\n"), texts, rels)


class Raw(Record, frozen=True):
    """A response as it came, for the WARC file."""

    request_head: bytes
    response_head: bytes
    body: bytes
    address: str
    is_http2: bool = False


class Page(Record, frozen=True, kw_only=True):
    """What a visit found under one URL; `status` 0 and an `error` where there was no response."""

    url: Annotated[str, Sent("url", "urls"), Stored("text")]
    fingerprint: int
    depth: Annotated[int, Sent("depth", "depths"), Stored("int32", after="size")]
    fetched: Annotated[float, Sent("fetched", "fetched"), Stored("time", after="depth")]
    status: Annotated[int, Sent("status", "statuses"), Stored("status")] = 0
    error: Annotated[str, Sent("error", "errors"), Stored("text")] = ""
    is_unchanged: bool = False  # 304, or the digest that was known
    content_type: Annotated[str, Sent("short_text", "types"), Stored("text")] = ""
    title: Annotated[str, Sent("short_text", "titles"), Stored("text")] = ""
    text: Annotated[str, Sent("text", "texts"), Stored("text")] = ""
    language: Annotated[str, Sent("short_text", "languages"), Stored("text")] = ""
    digest: Annotated[bytes, Sent("digest", "digest_kinds digests"), Stored("hex")] = b""
    size: Annotated[int, Sent("size", "sizes"), Stored("int64")] = 0
    modified: Annotated[str, Sent("validator", "modified"), Stored("date")] = ""
    etag: Annotated[str, Sent("validator", "etags"), Stored("text")] = ""
    referrer: Annotated[str, Sent("referrer", "referrers"), Stored("text")] = ""
    links: Annotated[Links, Sent("links", "link_urls link_texts link_rels")] = Links()
    raw: Annotated[Raw | None, Sent("raw", "raws")] = None
    # False: home learns that the page was seen, and stores nothing of it.
    is_kept: Annotated[bool, Sent("is_kept", "is_kept")] = True
    description: Annotated[str, Sent("short_text", "descriptions"), Stored("text", is_optional=True)] = ""
    keywords: Annotated[tuple[str, ...], Sent("texts", "keywords"), Stored("texts", is_optional=True)] = ()
    headings: Annotated[tuple[str, ...], Sent("texts", "headings"), Stored("texts", is_optional=True)] = ()
    html: Annotated[str, Sent("html", "htmls"), Stored("text", is_optional=True)] = ""
    headers: Annotated[
        tuple[tuple[str, str], ...], Sent("headers", "headers"), Stored("headers", is_optional=True)
    ] = ()
    extracts: Annotated[  # what the selectors found, by their names
        tuple[tuple[str, tuple[str, ...]], ...],
        Sent("extracts", "extracts"),
        Stored("extracts", is_optional=True),
    ] = ()
    # Of its text, where the crawler asks how much a page changed.
    likeness: Annotated[bytes, Sent("likeness", "has_likeness likenesses")] = b""
    # What is odd with a page that was read here: "cut", "damaged", "empty" or "scripts" (it needs them). It
    # does not travel, so that older homes and hosts compute the same leaves of a visit's pages.
    note: Annotated[str, Stored("text", is_optional=True)] = ""


class Checkpoint(Record, frozen=True, kw_only=True):
    """The change of the frontier since the last parcel."""

    found: tuple[Target, ...] = ()  # of this site, seen for the first time in this visit
    done: tuple[int, ...] = ()  # fingerprints that left the frontier without a page
    again: tuple[Target, ...] = ()  # to be tried once more, with their attempts


class Ended(StrEnum):
    """Why a visit ended."""

    FINISHED = "finished"  # its frontier is empty
    BUDGET = "budget"
    STOPPED = "stopped"  # home asked for it
    BLOCKED = "blocked"  # the site asked for a long pause
    FAILING = "failing"  # too many failures one after the other
    DISQUALIFIED = "disqualified"  # robots.txt could not be fetched
    REFUSED = "refused"  # by ourselves: it lies in a private network that nobody named
    LOST = "lost"  # its runtime sent nothing more
    # The limits of a budget, each by its name, and what ends an engine before its time.
    CPU_SECONDS = "cpu_seconds"
    WALL_SECONDS = "wall_seconds"
    MEMORY_BYTES = "memory_bytes"
    REQUESTS = "requests"
    FETCHED_BYTES = "fetched_bytes"
    SENT_BYTES = "sent_bytes"
    SCRATCH_BYTES = "scratch_bytes"
    FACTS = "facts"
    VIOLATION = "violation"  # it tried what the jail forbids
    CRASH = "crash"  # its engine died
    RULES = "rules"  # they cannot be read, or went wrong


# What ends a crawler at a site for good: home does not go on there in the same run.
LIMITS = frozenset({
    Ended.CPU_SECONDS, Ended.WALL_SECONDS, Ended.MEMORY_BYTES, Ended.REQUESTS, Ended.FETCHED_BYTES,
    Ended.SENT_BYTES, Ended.SCRATCH_BYTES, Ended.FACTS, Ended.VIOLATION, Ended.CRASH, Ended.RULES,
})  # fmt: skip


class Arrival(Record, frozen=True, kw_only=True):
    """When and in how many bytes a parcel came over the network from a host."""

    received_at: float
    size_bytes: int = 0


class Parcel(Record, frozen=True, kw_only=True):
    """A numbered batch of results with its checkpoint; the last one of a visit says how it ended."""

    visit: str
    site: str
    part: str
    epoch: int
    number: int
    pages: tuple[Page, ...] = ()
    outlinks: tuple[Target, ...] = ()  # of other sites, each reported once a visit
    checkpoint: Checkpoint = Checkpoint()
    state: StateChange = StateChange()
    rows: tuple[bytes, ...] = ()  # facts that rules sent home: first those before any page, then by page
    row_counts: tuple[int, ...] = ()  # of each page; empty if there are no rows, or it is not known
    holds: tuple[Hold, ...] = ()
    delay_seconds: float = 0.0  # the site's delay as it is now
    robots: Robots | None = None
    usage: Usage = Usage()
    ended: Ended | None = None
    arrival: Arrival | None = None  # set at home for a parcel of a host; never on the wire
    # Of the pages that were not wanted, how many failed which condition, in words; never on the wire.
    unmet: tuple[tuple[str, int], ...] = ()


# Takes a parcel; returns when it is stored for good.
Deliver = Callable[[Parcel], Awaitable[None]]
