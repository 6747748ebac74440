"""The records that cross the line between a host and its engine: pages in, verdicts out."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from sterna.model import Links, Record, Source, State, StateChange

MAX_FRAME_BYTES = 256 * 1024 * 1024  # to an engine: a batch of pages, or a state of many facts
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # from it
MAX_FOLLOWS = 10_000  # URLs that a page's rules may name
MAX_FOLLOW_CHARS = 2 * 1024 * 1024  # of all of them
MAX_ROW_BYTES = 1024 * 1024  # of rows that a page's rules may send home
MAX_LOG_LINES = 100
MAX_LINE_CHARS = 500
MAX_NUMBER = 10**12  # of own facts; those of the crawl come after, and CLIPS prints no longer ones
HEAD_BYTES = 4


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


class EngineLimits(Record, frozen=True, kw_only=True):
    """What an engine heeds by itself; 0 stands for no limit."""

    page_seconds: float
    cpu_seconds: float
    facts: int
    scratch_bytes: int


# -- what the host asks ------------------------------------------------------------------------------------


class Start(Record, frozen=True, kw_only=True, tag="start"):
    """Comes first: the rules, where they go on, and what they may use."""

    rules: tuple[Source, ...]
    state: State
    facts: tuple[bytes, ...]
    limits: EngineLimits
    drives_loading: bool


class Judge(Record, frozen=True, tag="judge"):
    """Pages, in the order in which they are judged."""

    pages: tuple[PageView, ...]


class RequestView(Record, frozen=True):
    """A URL that is to be fetched."""

    url: str
    depth: int = 0
    referrer: str = ""
    priority: int = 0


class Admit(Record, frozen=True, tag="admit"):
    """URLs, each to be fetched or not."""

    requests: tuple[RequestView, ...]


class Change(Record, frozen=True, tag="change"):
    """What became of the state?"""


Question = Start | Judge | Admit | Change

# -- what the engine answers -------------------------------------------------------------------------------


class Ready(Record, frozen=True, tag="ready"):
    """The rules run; what they said before any page, and whether they have a say in what is fetched."""

    first: Verdict
    asks_before_fetch: bool
    cpu_seconds: float


class Stopped(Record, frozen=True, tag="stopped"):
    """The rules heeded a soft stop: an answer follows as soon as what they left behind is put in order."""


class Verdicts(Record, frozen=True, tag="verdicts"):
    """Of the next pages; more may follow."""

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
    """What became of the state since this was last asked."""

    change: StateChange
    cpu_seconds: float


class Over(Record, frozen=True, tag="over"):
    """The engine cannot go on, and nothing comes after this."""

    ended: str
    detail: str


Answer = Ready | Stopped | Verdicts | Admitted | Changed | Over

Message = TypeVar("Message")


def framed(message: Question | Answer) -> bytearray:
    """A message as it is sent: four bytes of length, then msgpack; ValueError if it is too large."""
    frame = bytearray(HEAD_BYTES)
    _ENCODER.encode_into(message, frame, HEAD_BYTES)
    size = len(frame) - HEAD_BYTES
    _check_size(size, MAX_FRAME_BYTES if isinstance(message, Question) else MAX_ANSWER_BYTES)
    frame[:HEAD_BYTES] = size.to_bytes(HEAD_BYTES, "big")
    return frame


def frame_size(head: bytes, most: int = MAX_FRAME_BYTES) -> int:
    """How many bytes follow; ValueError if they are too many."""
    size = int.from_bytes(head, "big")
    _check_size(size, most)
    return size


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"a message of {size:,} bytes is larger than {most:,}")


def _decoder(kind: type[Message] | object) -> Callable[[bytes], Message]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes) -> Message:
        try:
            message: Message = decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"a message that cannot be read: {error}") from error
        return message

    return read


_ENCODER = msgspec.msgpack.Encoder()
read_question: Callable[[bytes], Question] = _decoder(Question)
read_answer: Callable[[bytes], Answer] = _decoder(Answer)
