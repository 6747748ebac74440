"""The messages between a host and its engine: pages in, verdicts out; and what a host believes of them."""

from collections.abc import Callable

from sterna.model import Budget, Ended, Links, Record, Source, State, StateChange, Target
from sterna.runtime.cell.frame import message_decoder

MAX_REQUEST_BYTES = 256 * 1024 * 1024  # to an engine: a batch of pages, or a state of many facts
MAX_REPLY_BYTES = 64 * 1024 * 1024  # from it
MAX_FOLLOWS = 10_000  # URLs that a page's rules may name
MAX_FOLLOW_CHARS = 2 * 1024 * 1024  # of all of them
MAX_ROW_BYTES = 1024 * 1024  # of rows that a page's rules may send home
MAX_LOG_LINES = 100
MAX_LINE_CHARS = 500
MAX_NUMBER = 10**12  # of own facts; those of the crawl come after, and CLIPS prints no longer ones
ENDS = frozenset({"", *Ended})  # "" while the rules go on


class PageView(Record, frozen=True, kw_only=True):
    """What rules see of a page; fields that no rule reads stay empty."""

    url: str
    site: str = ""
    status: int = 0
    error: str = ""
    depth: int = 0
    referrer: str = ""
    content_type: str = ""
    size: int = 0
    title: str = ""
    description: str = ""
    language: str = ""
    selected: bool = True
    keywords: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    text: str = ""
    html: str = ""
    links: Links = Links()
    extracts: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Verdict(Record, frozen=True, kw_only=True):
    """What the rules decided on a page."""

    is_kept: bool | None = None  # None: as the selection says
    follows_links: bool = True
    follow: tuple[tuple[str, int], ...] = ()  # URLs that the rules name, with their priorities
    priorities: tuple[tuple[str, int], ...] = ()
    rows: tuple[bytes, ...] = ()
    log: tuple[str, ...] = ()
    error_count: int = 0
    ended: str = ""  # the limit at which the rules were stopped, as model.Ended has it
    detail: str = ""


# -- requests of the host ------------------------------------------------------------------------------------


class Start(Record, frozen=True, kw_only=True, tag="start"):
    """Comes first: the rules, the state they continue from, and their limits."""

    rules: tuple[Source, ...]
    state: State
    facts: tuple[bytes, ...]
    budget: Budget  # of which the engine enforces CPU time, facts and scratch store itself
    page_seconds: float
    drives_loading: bool


class Judge(Record, frozen=True, tag="judge"):
    """Pages to be judged, in this order."""

    pages: tuple[PageView, ...]


class Admit(Record, frozen=True, tag="admit"):
    """URLs, each of which the rules may refuse."""

    requests: tuple[Target, ...]


class Change(Record, frozen=True, tag="change"):
    """Asks for the change of the state."""


EngineRequest = Start | Judge | Admit | Change

# -- replies of the engine -------------------------------------------------------------------------------


class Ready(Record, frozen=True, tag="ready"):
    """The rules run: what they decided before any page, and whether they judge requests."""

    first: Verdict
    asks_before_fetch: bool
    cpu_seconds: float


class Stopped(Record, frozen=True, tag="stopped"):
    """The rules obeyed a soft stop: a reply follows as soon as their facts are in order."""


class Verdicts(Record, frozen=True, tag="verdicts"):
    """The verdicts on the next pages; more may follow."""

    verdicts: tuple[Verdict, ...]
    cpu_seconds: float


class Admitted(Record, frozen=True, tag="admitted"):
    """True for each URL that may be fetched, and lines for the log."""

    admits: tuple[bool, ...]
    log: tuple[str, ...]
    cpu_seconds: float
    ended: str = ""
    detail: str = ""


class Changed(Record, frozen=True, tag="changed"):
    """The change of the state since the last request for it."""

    change: StateChange
    cpu_seconds: float


class Over(Record, frozen=True, tag="over"):
    """The engine failed; nothing comes after this."""

    ended: str
    detail: str


EngineReply = Ready | Stopped | Verdicts | Admitted | Changed | Over

read_request: Callable[[bytes], EngineRequest] = message_decoder(EngineRequest)
_decode_reply: Callable[[bytes], EngineReply] = message_decoder(EngineReply)


# -- what a host believes ----------------------------------------------------------------------------------


def read_reply(data: bytes) -> EngineReply:
    """A reply; ValueError if it is malformed or claims more than rules can say."""
    reply = _decode_reply(data)
    match reply:
        case Verdicts(verdicts):
            for verdict in verdicts:
                _check_verdict(verdict)
        case Ready(first):
            _check_verdict(first)
        case Changed(change):
            numbers = (*(number for number, _ in change.added), *change.removed)
            if numbers and not 0 < min(numbers) <= max(numbers) < MAX_NUMBER:
                raise ValueError(f"fact numbers out of range (1 to {MAX_NUMBER:,})")
    return reply


def _check_verdict(verdict: Verdict) -> None:
    urls = [url for url, _ in (*verdict.follow, *verdict.priorities)]
    if len(urls) > 2 * MAX_FOLLOWS or sum(map(len, urls)) > MAX_FOLLOW_CHARS:
        raise ValueError(f"{len(urls):,} URLs for one page")
    if sum(map(len, verdict.rows)) > MAX_ROW_BYTES:
        raise ValueError("too many rows for one page")
    if len(verdict.log) > MAX_LOG_LINES:
        raise ValueError("too many log lines for one page")
    if verdict.ended not in ENDS:
        raise ValueError(f"unknown end of a visit: {verdict.ended[:40]!r}")
