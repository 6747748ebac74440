"""The part of a page's text that shows best why the page matches, with the words marked."""

from collections.abc import Sequence

from tantivy import Document, Query, Schema, Searcher, SnippetGenerator

from sterna.search import schema
from sterna.search.results import Piece

SNIPPET_CHARS = 240
WINDOW_CHARS = 3_000  # of a text, from which the snippet is taken
_BEFORE_CHARS = 300
_STEP_CHARS = 6_000  # searched at a time for the words
_MAX_WORD_CHARS = 100
_TITLE_CHARS = 100_000  # more than any title has: titles are never cut
_ELLIPSIS = "…"


class Snippets:
    """Makes the snippets of one search."""

    def __init__(
        self, searcher: Searcher, fields: Schema, wanted: Query | None, words: Sequence[str]
    ) -> None:
        self._searcher = searcher
        self._schema = fields
        self._wanted = wanted
        # The longest first: it is probably the rarest.
        self._words = sorted((word.lower() for word in words), key=len, reverse=True)
        self._generators: dict[str, SnippetGenerator] = {}

    def of_text(self, text: str, analysis: str) -> tuple[Piece, ...]:
        """The best part of a text; its beginning if it contains none of the words."""
        begin = _window(text, self._words)
        window = " ".join(text[begin : begin + WINDOW_CHARS].split())
        found = self._marked(window, schema.ALL, analysis, max_chars=SNIPPET_CHARS)
        if found is None:
            beginning = " ".join(text[: 2 * SNIPPET_CHARS].split())
            if len(beginning) > SNIPPET_CHARS or len(text) > 2 * SNIPPET_CHARS:
                cut = beginning[:SNIPPET_CHARS]
                beginning = f"{cut.rpartition(' ')[0] or cut} {_ELLIPSIS}"
            return (Piece(beginning),) if beginning else ()
        fragment, pieces = found
        is_begin = not begin and window.startswith(fragment)
        is_end = begin + WINDOW_CHARS >= len(text) and window.endswith(fragment)
        first = [] if is_begin else [Piece(f"{_ELLIPSIS} ")]
        last = [] if is_end else [Piece(f" {_ELLIPSIS}")]
        return (*first, *pieces, *last)

    def of_title(self, title: str, analysis: str) -> tuple[Piece, ...]:
        found = self._marked(title, schema.TITLE, analysis, max_chars=_TITLE_CHARS)
        if found is None or not title.startswith(found[0]):
            return (Piece(title),) if title else ()
        rest = title[len(found[0]) :]
        return (*found[1], *([Piece(rest)] if rest else []))

    def _marked(
        self, text: str, field: str, analysis: str, *, max_chars: int
    ) -> tuple[str, list[Piece]] | None:
        """The fragment and its pieces; None if it contains none of the words."""
        if self._wanted is None or not text:
            return None
        name = schema.named(field, analysis)
        generator = self._generators.get(name)
        if generator is None:
            generator = SnippetGenerator.create(self._searcher, self._wanted, self._schema, name)
            generator.set_max_num_chars(max_chars)
            self._generators[name] = generator
        document = Document()
        document.add_text(name, text)
        snippet = generator.snippet_from_doc(document)
        fragment = snippet.fragment()
        ranges = sorted((each.start, each.end) for each in snippet.highlighted())
        return (fragment, pieces_of(fragment, ranges)) if fragment else None


def pieces_of(fragment: str, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
    """The fragment cut at the ranges, which are in bytes of UTF-8 and sorted."""
    raw = fragment.encode()
    pieces: list[Piece] = []
    done = 0
    for begin, end in ranges:
        begin = max(begin, done)  # noqa: PLW2901 - ranges may overlap
        if begin >= end:
            continue
        if done < begin:
            pieces.append(Piece(raw[done:begin].decode(errors="replace")))
        pieces.append(Piece(raw[begin:end].decode(errors="replace"), is_marked=True))
        done = end
    if done < len(raw):
        pieces.append(Piece(raw[done:].decode(errors="replace")))
    return pieces


def _window(text: str, words: Sequence[str]) -> int:
    """Where the part of a long text begins that contains the words, found without stemming."""
    if len(text) <= WINDOW_CHARS:
        return 0
    # All of them in a row, then each, then the beginning of each: the text may have another form of it.
    sought = [" ".join(words), *words, *(word[: max(4, 2 * len(word) // 3)] for word in words)]
    for begin in range(0, len(text), _STEP_CHARS):
        step = text[begin : begin + _STEP_CHARS + _MAX_WORD_CHARS].lower()
        place = next((place for word in sought if (place := step.find(word)) >= 0), -1)
        if place >= 0:
            return max(0, begin + place - _BEFORE_CHARS)
    return 0
