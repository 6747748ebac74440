"""What of a page is its own: its headings, and its text without the menus and frames around it.

A walk of the tree gives the text in pieces, with a space where a block begins or ends, and the spans of those
pieces that some elements hold.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice, pairwise

from sterna.web.markup import Content, cut

MAX_HEADINGS = 200
MAX_HEADING_LENGTH = 200
# What is looked at of the text of a link or a heading, in pieces and in characters of each: they can nest,
# and each would read the text of all the inner ones.
MAX_PIECES, MAX_PIECE_LENGTH = 64, 1_000


class Kind(Enum):
    """What a span of pieces is."""

    HEADING = 1
    HEADER = 2  # of a page or an article: a frame, but what it has of headings is the page's own
    FRAME = 3


_HEADING = Kind.HEADING  # looking up a member of an Enum takes long


class Span:
    """The pieces that an element holds, from `start` up to `end`, which the walk sets when it comes there."""

    __slots__ = ("end", "kind", "start")

    def __init__(self, kind: Kind, start: int) -> None:
        self.kind = kind
        self.start = start
        self.end = start


def headings_of(pieces: Sequence[str], spans: Iterable[Span]) -> tuple[str, ...]:
    """Gives the headings that say something, in their order."""
    texts = (cut(_text_of(pieces, span), MAX_HEADING_LENGTH) for span in spans if span.kind is _HEADING)
    return tuple(islice(filter(None, texts), MAX_HEADINGS))


def _text_of(pieces: Sequence[str], span: Span) -> str:
    some = pieces[span.start : min(span.end, span.start + MAX_PIECES)]
    return "".join([piece[:MAX_PIECE_LENGTH] for piece in some])


def content_of(pieces: Sequence[str], spans: Iterable[Span], links: Sequence[int]) -> Content:
    """Gives what a page says besides its frames and menus.

    `spans` are in the order of their starts; `links` are the pieces that are a link's text.
    """
    headings: list[str] = []
    frames: list[Span] = []
    framed_until = silent_until = 0
    for span in spans:
        if span.kind is _HEADING:
            if span.start >= silent_until and len(headings) < MAX_HEADINGS:
                headings.append("".join(pieces[span.start : span.end])[:MAX_HEADING_LENGTH])
                silent_until = span.end  # for headings within this one
        elif 2 * (span.end - span.start) < len(pieces):  # what holds most of a page is no frame around it
            if span.kind is Kind.FRAME:
                silent_until = max(silent_until, span.end)
            if span.start >= framed_until:
                frames.append(span)
                framed_until = span.end
    return Content(tuple(headings), "".join(_without(frames, links, pieces)))


_SEPARATORS = " \t\n\r\f\xa0|/\\,;:.<>[](){}*+-–—·•→←»«›‹▸▾"


def _without(frames: Iterable[Span], links: Sequence[int], pieces: Sequence[str]) -> list[str]:
    """Gives the pieces without the frames, and without links by themselves or among others: menus."""
    kept = [*pieces, " "]  # for the last piece, and by its index -1 for the first
    for at, next_link in pairwise([*links, -1]):
        before, after = kept[at - 1], kept[at + 1]
        if (before == " " or not before.strip(_SEPARATORS)) and (
            after == " " or next_link == at + 1 or not after.strip(_SEPARATORS)
        ):
            kept[at] = " "
    for frame in frames:
        kept[frame.start : frame.end] = [" "] * (frame.end - frame.start)
    return kept
