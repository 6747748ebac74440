"""The functions that rules have besides those of CLIPS, to decide, read and remember; and what rules decided.

`docs/rules.md` shows each with an example, and a test runs them.
"""

from collections.abc import Iterable
from functools import lru_cache

from clips._clips import lib

from sterna.crawler.facts import FALSE, Fact, Symbol, Value, Values, encode
from sterna.crawler.rules import TEMPLATES
from sterna.crawler.text_tests import TextTest, any_test, check_words, like_test, read_like, search_test
from sterna.runtime.engine.clips import UNBOUNDED, Clips, Native
from sterna.runtime.engine.messages import (
    MAX_FOLLOW_CHARS,
    MAX_FOLLOWS,
    MAX_LINE_CHARS,
    MAX_LOG_LINES,
    MAX_ROW_BYTES,
    PageView,
    Verdict,
)
from sterna.runtime.engine.state import Scratch
from sterna.runtime.engine.values import ANY, LEXEMES, SINGLE, RuleFault
from sterna.web.urls import Canonical, path_of, site_of

_PATTERNS = 512  # tests of texts that are kept ready
_INTEGER = lib.INTEGER_BIT
_FIELDS = ("text", "html")  # besides the slots of a page

MAX_URL_CHARS = 8 * 1024


class Said:
    """Decisions on one page, within bounds; new for each page, and changed by the functions of rules."""

    def __init__(self, *, follows_links: bool = True) -> None:
        self.is_kept: bool | None = None
        self.follows_links = follows_links
        self.refused: set[str] = set()
        self.to_follow: dict[str, int] = {}  # URLs with their priorities
        self.priorities: dict[str, int] = {}  # of URLs, wherever they wait
        self._url_chars = 0
        self._rows: list[bytes] = []
        self._row_bytes = 0
        self._log: list[str] = []
        self._line = ""  # printed so far without a line end

    def note(self, notes: dict[str, int], url: str, priority: int) -> None:
        """Adds a URL to those to follow, or to those whose priority is raised."""
        if len(url) > MAX_URL_CHARS:
            raise RuleFault(f"a URL of {len(url):,} characters is too long")
        if url not in notes:
            self._url_chars += len(url)
            if len(notes) >= MAX_FOLLOWS or self._url_chars > MAX_FOLLOW_CHARS:
                raise RuleFault(f"too many URLs for one page: {MAX_FOLLOWS:,} are allowed")
        notes[url] = priority

    def emit(self, row: bytes) -> None:
        if self._row_bytes + len(row) > MAX_ROW_BYTES:
            raise RuleFault(f"more than {MAX_ROW_BYTES:,} bytes of rows for one page")
        self._row_bytes += len(row)
        self._rows.append(row)

    def print(self, text: str) -> None:
        """Adds text to the log, which takes whole lines."""
        *lines, self._line = (self._line + text[: MAX_LINE_CHARS * MAX_LOG_LINES]).split("\n")
        for line in lines:
            self.log(line)

    def log(self, line: str) -> None:
        """Adds a line to the log, as long as there is room."""
        if len(self._log) < MAX_LOG_LINES:
            self._log.append(" ".join(line.split())[:MAX_LINE_CHARS])

    def verdict(self, *, error_count: int, ended: str, detail: str) -> Verdict:
        if self._line:
            self.print("\n")
        return Verdict(
            is_kept=self.is_kept,
            follows_links=self.follows_links,
            follow=tuple(self.to_follow.items()),
            priorities=tuple(self.priorities.items()),
            rows=tuple(self._rows),
            log=tuple(self._log),
            error_count=error_count,
            ended=ended,
            detail=detail,
        )


class Functions:
    """What native functions work on; the engine sets it before it runs the rules on a page."""

    def __init__(self, clips: Clips, scratch: Scratch) -> None:
        self._clips = clips
        self._scratch = scratch
        self._canonical = Canonical(())
        self.said = Said()
        self.view: PageView | None = None  # the page that is judged
        self.is_asking = False  # a request is judged

    def natives(self) -> tuple[Native, ...]:
        words = (LEXEMES,)
        any_values = (ANY,)
        return (
            Native("follow", self._follow, 1, 2, (LEXEMES, _INTEGER)),
            Native("load-page", self._follow, 1, 2, (LEXEMES, _INTEGER)),
            Native("follow-links", self._follow_links, 0, 0, words),
            Native("follow-none", self._follow_none, 0, 0, words),
            Native("priority", self._priority, 2, 2, (LEXEMES, _INTEGER)),
            Native("refuse", self._refuse, 1, 1, words),
            Native("keep", self._keep, 0, 0, words),
            Native("drop", self._drop, 0, 0, words),
            Native("emit", self._emit, 1, UNBOUNDED, (LEXEMES, ANY)),
            Native("page-text", self._page_text, 0, 0, words),
            Native("page-html", self._page_html, 0, 0, words),
            Native("page-links", self._page_links, 0, 0, words),
            Native("page-field", self._page_field, 1, 1, words),
            Native("extract", self._extract, 1, 1, words),
            Native("text-has", self._text_has, 1, UNBOUNDED, any_values),
            Native("text-has-all", self._text_has_all, 1, UNBOUNDED, any_values),
            Native("text-count", self._text_count, 1, 1, (SINGLE,)),
            Native("text-like", self._text_like, 1, 1, words),
            Native("text-matches", self._text_matches, 1, 1, words),
            Native("like", self._like, 2, 2, (SINGLE, LEXEMES)),
            Native("matches", self._matches, 2, 2, (SINGLE, LEXEMES)),
            Native("link-to", self._link_to, 1, 1, words),
            Native("links-like", self._links_like, 1, 1, words),
            Native("url-site", self._url_site, 1, 1, words),
            Native("url-path", self._url_path, 1, 1, words),
            Native("url-join", self._url_join, 2, 2, words),
            Native("store", self._store, 2, 2, (SINGLE, ANY)),
            Native("recall", self._recall, 1, 2, (SINGLE, ANY)),
            Native("log-line", self._log_line, 0, UNBOUNDED, any_values),
            Native("printout", self._printout, 1, UNBOUNDED, any_values),
        )

    # -- to decide -----------------------------------------------------------------------------------------

    def _decide(self) -> Said:
        if self.is_asking:
            raise RuleFault("is for rules on pages; a request can only be refused")
        return self.said

    def _follow(self, url: Value, priority: int = 0) -> None:
        said = self._decide()
        said.note(said.to_follow, _text(url), priority)

    def _follow_links(self) -> None:
        self._decide().follows_links = True

    def _follow_none(self) -> None:
        self._decide().follows_links = False

    def _priority(self, url: Value, priority: int) -> None:
        said = self._decide()
        said.note(said.priorities, _text(url), priority)

    def _refuse(self, url: Value) -> None:
        if not self.is_asking:
            raise RuleFault("is for rules on requests: (request (url ?url))")
        self.said.refused.add(_text(url))

    def _keep(self) -> None:
        self._decide().is_kept = True

    def _drop(self) -> None:
        self._decide().is_kept = False

    def _emit(self, template: Value, *fields: Value | Values) -> None:
        self._decide().emit(encode(self._row(_text(template), fields)))

    def _row(self, name: str, fields: tuple[Value | Values, ...]) -> Fact:
        template = self._clips.template_named(name)
        if template is None or template.slots is None:
            return Fact(name, tuple(_flat(fields)))
        if len(fields) != len(template.slots):
            raise RuleFault(f"{name} has {len(template.slots)} slots, and {len(fields)} values were given")
        slots = []
        for (slot, is_multi), field in zip(template.slots, fields, strict=True):
            if isinstance(field, tuple) and not is_multi:
                raise RuleFault(f"the slot {slot} of {name} takes one value")
            slots.append((slot, (field,) if is_multi and not isinstance(field, tuple) else field))
        return Fact(name, slots=tuple(slots))

    # -- to read the page ----------------------------------------------------------------------------------

    def _page_text(self) -> str:
        return self.view.text if self.view else ""

    def _page_html(self) -> str:
        return self.view.html if self.view else ""

    def _page_links(self) -> tuple[str, ...]:
        urls = self.view.links.urls if self.view else ""
        return tuple(urls.split("\n")) if urls else ()

    def _page_field(self, name: Value) -> Value | Values:
        field = _text(name).replace("_", "-")
        if field == "links":
            return self._page_links()
        if field not in TEMPLATES["page"] and field not in _FIELDS:
            known = ", ".join((*TEMPLATES["page"], *_FIELDS, "links"))
            raise RuleFault(f"a page has no field {field!r}; it has {known}")
        value: Value | Values = getattr(self.view, field.replace("-", "_")) if self.view else ""
        return value

    def _extract(self, name: Value) -> Values:
        return dict(self.view.extracts).get(_text(name), ()) if self.view else ()

    def _text_has(self, *words: Value | Values) -> bool:
        return _word_test(words)(self._page_text())

    def _text_has_all(self, *words: Value | Values) -> bool:
        text = self._page_text()
        return all(_word_test((word,))(text) for word in _flat(words))

    def _text_count(self, word: Value) -> int:
        return count_words(_folded(self._page_text()), _text(word))

    def _text_like(self, pattern: Value) -> bool:
        return _like_test(_text(pattern))(self._page_text())

    def _text_matches(self, expression: Value) -> bool:
        return _search_test(_text(expression))(self._page_text())

    def _link_to(self, pattern: Value) -> bool:
        return any(map(_like_test(_text(pattern)), self._page_links()))

    def _links_like(self, pattern: Value) -> Values:
        return tuple(filter(_like_test(_text(pattern)), self._page_links()))

    # -- texts and URLs ------------------------------------------------------------------------------------

    def _like(self, value: Value, pattern: Value) -> bool:
        return _like_test(_text(pattern))(_text(value))

    def _matches(self, value: Value, expression: Value) -> bool:
        return _search_test(_text(expression))(_text(value))

    def _url_site(self, url: Value) -> str:
        return site_of(self._canonical(_text(url)) or "")

    def _url_path(self, url: Value) -> str:
        return path_of(self._canonical(_text(url)) or "")

    def _url_join(self, base: Value, href: Value) -> Value:
        return self._canonical(_text(href), self._canonical(_text(base)) or "") or FALSE

    # -- to remember and to tell ---------------------------------------------------------------------------

    def _store(self, name: Value, value: Value | Values) -> None:
        self._scratch.store(_text(name), value)

    def _recall(self, name: Value, default: Value | Values = FALSE) -> Value | Values:
        return self._scratch.recall(_text(name), default)

    def _log_line(self, *values: Value | Values) -> None:
        self.said.log("".join(map(_text, _flat(values))))

    def _printout(self, router: Value, *values: Value | Values) -> None:
        if router != Symbol("nil"):
            self.said.print(
                "".join("\n" if value == Symbol("crlf") else _text(value) for value in _flat(values))
            )


@lru_cache(maxsize=1)
def _folded(text: str) -> str:
    """Of the page that is judged, for which rules may ask several times."""
    return text.lower() if text.isascii() else text.casefold()  # the same, and ten times as fast


def count_words(folded: str, word: str) -> int:
    """How often a folded text holds the word, whatever its case, with no letter or digit beside it."""
    wanted = word.casefold().strip()
    check_words((wanted,))
    count, at = 0, 0
    while (at := folded.find(wanted, at)) >= 0:
        end = at + len(wanted)
        if not (_joins(folded[at - 1 : at], wanted[0]) or _joins(wanted[-1], folded[end : end + 1])):
            count += 1
        at = end
    return count


def _joins(one: str, other: str) -> bool:
    return one.isalnum() and other.isalnum()


def _text(value: Value) -> str:
    if isinstance(value, Symbol):
        return value.name
    return value if isinstance(value, str) else str(value)


def _flat(values: Iterable[Value | Values]) -> Iterable[Value]:
    for value in values:
        if isinstance(value, tuple):
            yield from value
        else:
            yield value


@lru_cache(maxsize=_PATTERNS)
def _word_test(words: tuple[Value | Values, ...]) -> TextTest:
    wanted = tuple(map(_text, _flat(words)))
    check_words(wanted)
    return any_test(wanted) if wanted else lambda _: False


@lru_cache(maxsize=_PATTERNS)
def _like_test(pattern: str) -> TextTest:
    return like_test(read_like(pattern))


@lru_cache(maxsize=_PATTERNS)
def _search_test(expression: str) -> TextTest:
    return search_test(expression)
