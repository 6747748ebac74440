"""What a request asks for: read from its parameters, and refused where it is out of bounds."""

import re
from collections.abc import Mapping

from sterna.model import Record
from sterna.search.page.interface import Bounds

_NUMBER = re.compile(r"[0-9]{1,9}")


class BadQuestion(Exception):
    """A request that cannot be answered; its text says what to ask instead."""


class Question(Record, frozen=True, kw_only=True):
    """Words, and which of the pages found are wanted."""

    words: str
    limit: int
    offset: int = 0


def page_question(params: Mapping[str, str], bounds: Bounds) -> Question | None:
    """What `/?q=WORDS&page=N` asks; None if it asks nothing."""
    words = _words(params, bounds)
    if not words:
        return None
    number = _number(params, "page", least=1, most=bounds.pages, default=1)
    return Question(words=words, limit=bounds.hits, offset=(number - 1) * bounds.hits)


def api_question(params: Mapping[str, str], bounds: Bounds) -> Question:
    """What `/api/search?q=WORDS&limit=N&offset=N` asks."""
    words = _words(params, bounds)
    if not words:
        raise BadQuestion("q is missing: say what to search for, such as q=tern")
    limit = _number(params, "limit", least=1, most=bounds.api_hits, default=bounds.hits)
    offset = _number(params, "offset", least=0, most=bounds.reach, default=0)
    return Question(words=words, limit=limit, offset=offset)


def _words(params: Mapping[str, str], bounds: Bounds) -> str:
    words = params.get("q", "")
    if len(words) > bounds.letters:
        raise BadQuestion(f"The query has {len(words):,} letters: at most {bounds.letters} are searched for.")
    return " ".join(words.replace("\0", " ").split())


def _number(params: Mapping[str, str], name: str, *, least: int, most: int, default: int) -> int:
    written = params.get(name)
    if written is None:
        return default
    # int() alone would take signs, spaces and the digits of all alphabets, too.
    if not _NUMBER.fullmatch(written) or not least <= int(written) <= most:
        raise BadQuestion(f"{name} must be a number from {least} to {most:,}.")
    return int(written)
