"""The addresses that CSS names: images, fonts and further style sheets."""

import html
import re
from collections.abc import Iterator
from itertools import islice

MAX_URLS = 500  # of one style sheet, or of all the CSS in a page

_COMMENT = re.compile(r"/\*(?:[^*]++|\*(?!/))*+(?:\*/)?")
_STRING = r""""([^"\\\n]*+)"|'([^'\\\n]*+)'"""
_NAMED = re.compile(
    rf"""url\(\s*+(?:(?:{_STRING})|([^"'()\\\s]++))\s*+\)|@import\s++(?:{_STRING})""", re.IGNORECASE
)
# In a page: what is between the tags of a style sheet, or is written in an attribute.
_IN_PAGE = re.compile(
    r"""<style(?=[\s>])[^>]*+>((?:[^<]++|<(?!/style))*+)|\sstyle\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""",
    re.IGNORECASE,
)


def urls_of_css(css: str) -> list[str]:
    """Returns the addresses as they are written, each once; data that is written out is left out."""
    found = (
        next(filter(None, each.groups()), "").strip() for each in _NAMED.finditer(_COMMENT.sub(" ", css))
    )
    wanted = dict.fromkeys(url for url in found if url and not url.startswith(("data:", "#")))
    return list(islice(wanted, MAX_URLS))


def urls_of_page(markup: str) -> list[str]:
    """Returns the addresses that the CSS within a page names."""
    return urls_of_css("\n".join(_css_in(markup))) if "url(" in markup or "@import" in markup else []


def _css_in(markup: str) -> Iterator[str]:
    for sheet, double, single in _IN_PAGE.findall(markup):
        yield sheet or html.unescape(double or single)
