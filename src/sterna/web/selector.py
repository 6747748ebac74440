"""CSS selectors, taken apart into steps that each take time in proportion to a page.

An engine that goes from element to element can take time with any power of the page: `a b c d` on deep pages,
`a ~ b ~ c` and `:nth-child()` on wide ones. So the parser's engine is asked only what an element is by
itself; how elements stand to each other is found out once for each. What this cannot tell is refused, as
`:has()`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from sterna.errors import UsageError
from sterna.model import Record

_MAX_LENGTH, _MAX_STEPS = 500, 20


class Position(Record, frozen=True):
    """That an element is the (cycle * n + offset)th of its siblings, for some n from 0 on."""

    cycle: int
    offset: int
    is_of_type: bool  # counted among those of its own name
    is_from_end: bool

    def holds(self, number: int) -> bool:
        """Tells whether it holds for an element by its number, of which the first is 1."""
        rest = number - self.offset
        return rest == 0 if self.cycle == 0 else rest % self.cycle == 0 and rest // self.cycle >= 0


class Step(Record, frozen=True):
    """An element: how it stands to that of the step before, what it is, and its places among its siblings."""

    combinator: str
    css: str
    positions: tuple[Position, ...] = ()


Chain = tuple[Step, ...]


@lru_cache(maxsize=256)
def parse_selector(css: str) -> tuple[Chain, ...]:
    """Gives the chains of a selector, of which an element has to fit one; UsageError says what cannot be."""
    if len(css) > _MAX_LENGTH:
        raise UsageError(f"selector {css[:40]!r}...: longer than {_MAX_LENGTH} characters; make it shorter")
    chains: list[list[Step]] = []
    for combinator, compound in _compounds_of(css.strip()):
        if not combinator:
            chains.append([])
        chains[-1].append(_step_of(combinator, compound))
    steps = [step for chain in chains for step in chain]
    if len(steps) > _MAX_STEPS:
        raise UsageError(f"selector {css!r}: more than {_MAX_STEPS} parts; make it shorter")
    for step in steps:
        _check_with_parser(step.css)
    return tuple(map(tuple, chains))


_ESCAPE = r"\\(?:[0-9a-fA-F]{1,6}+[ \t\n]?+|[^\n0-9a-fA-F])"
_NAME = rf"-?(?:[^\W\d]|{_ESCAPE})(?:[\w-]|{_ESCAPE})*+"
_STRING = r"""(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')"""
_ATTRIBUTE = rf"\[\s*+{_NAME}\s*+(?:[~|^$*]?=\s*+(?:{_NAME}|{_STRING})\s*+[iIsS]?\s*+)?\]"
_STATE = r":(?i:first-child|last-child|only-child|empty|root|any-link|link|checked|disabled)(?![\w(-])"
_SIMPLE = rf"(?:[#.]{_NAME}|{_ATTRIBUTE}|{_STATE})"
_PLAIN = rf"(?:(?:\*|{_NAME}){_SIMPLE}*+|{_SIMPLE}++)"
_CHOICE = rf":(?i:not|is|where)\(\s*+{_PLAIN}(?:\s*+,\s*+{_PLAIN})*+\s*+\)"
_PLACE = (
    r":(?i:nth-(?:last-)?(?:child|of-type)\(\s*+(?:even|odd|[+-]?\d*+n(?:\s*+[+-]\s*+\d++)?|[+-]?\d++)\s*+\)"
    r"|(?:first|last|only)-of-type(?![\w(-]))"
)

# Compiled where they are needed, for that takes time, and few crawlers have selectors.
_COMPOUND = rf"(?:\*|{_NAME})?(?:{_SIMPLE}|{_CHOICE}|{_PLACE})*+"
_PART = rf"{_PLACE}|{_CHOICE}|{_SIMPLE}|\*|{_NAME}"
_JOINT = r"\s*+([,>+~])\s*+|\s++"


def _compounds_of(css: str) -> Iterator[tuple[str, str]]:
    """Gives what the elements of a selector are, each with its combinator; "" begins a chain."""
    at, combinator = 0, ""
    while True:
        found = re.compile(_COMPOUND).match(css, at)
        if not found or not found[0]:
            raise _refusal(css, at)
        yield combinator, found[0]
        at = found.end()
        if at == len(css):
            return
        joint = re.compile(_JOINT).match(css, at)
        if not joint:
            raise _refusal(css, at)
        at = joint.end()
        combinator = "" if joint[1] == "," else joint[1] or " "


def _refusal(css: str, at: int) -> UsageError:
    what = f"{css[at : at + 30]!r} cannot be used" if css[at:] else "something is missing at its end"
    return UsageError(
        f"selector {css!r}: {what}; write elements, #ids, .classes, [attributes], :not(), :is(), :nth-child()"
        " and the like, with spaces, >, + or ~ between them"
    )


def _step_of(combinator: str, compound: str) -> Step:
    css: list[str] = []
    positions: list[Position] = []
    for part in re.findall(_PART, compound):
        if re.fullmatch(_PLACE, part):
            positions += _positions_of(part.lower())
        else:
            css.append(part)
    return Step(combinator, "".join(css) or "*", tuple(positions))


_FORMULA = r"([+-]?\d*)n([+-]\d+)?"
_CYCLES = {"": 1, "+": 1, "-": -1}


def _positions_of(place: str) -> list[Position]:
    kind, _, argument = place.rstrip(")").partition("(")
    is_of_type = kind.endswith("of-type")
    if not argument:
        edges = [True, False] if "only" in kind else ["last" in kind]
        return [Position(0, 1, is_of_type=True, is_from_end=edge) for edge in edges]
    argument = "".join(argument.split()).replace("even", "2n").replace("odd", "2n+1")
    formula = re.fullmatch(_FORMULA, argument)
    cycle, offset = formula.groups() if formula else ("0", argument)
    number = _CYCLES[cycle] if cycle in _CYCLES else int(cycle)
    return [Position(number, int(offset or 0), is_of_type=is_of_type, is_from_end="last" in kind)]


def _check_with_parser(css: str) -> None:
    try:
        LexborHTMLParser("").css(css)
    except SelectolaxError as error:
        raise UsageError(f"selector {css!r}: this is no CSS") from error
