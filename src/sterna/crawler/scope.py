"""Where a crawler starts and which URLs it wants."""

import re

from sterna.crawler.text_tests import TextTest, search_test
from sterna.errors import UsageError
from sterna.model import Scope
from sterna.web.urls import Canonical, is_trap, path_of

_NO_SITE = re.compile(r"https?/|[^:/?#]*[\"'<>]")  # a colon is missing, or quotes came along
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")


class ScopeRules:
    """A scope, compiled to judge URLs."""

    def __init__(self, scope: Scope) -> None:
        self._include = [_test("--include", expression) for expression in scope.include]
        self._exclude = [_test("--exclude", expression) for expression in scope.exclude]
        self._subtrees = tuple(subtree.rstrip("/") for subtree in scope.subtrees)

    def admits(self, url: str) -> bool:
        """True if the URL is wanted; a path that looks endless never is."""
        if self._include and not any(finds(url) for finds in self._include):
            return False
        if any(finds(url) for finds in self._exclude):
            return False
        if self._subtrees:
            path = path_of(url).partition("?")[0]
            if not any(path == subtree or path.startswith(f"{subtree}/") for subtree in self._subtrees):
                return False
        return not is_trap(url)


def _test(option: str, expression: str) -> TextTest:
    try:
        return search_test(expression)
    except UsageError as error:
        hint = ""
        if expression.startswith("*") and (rest := expression.strip("*")):  # as file names are matched
            end = "" if expression.endswith("*") else "$"
            hint = f"; it is a regular expression: write {re.escape(rest)}{end}"
        raise UsageError(f"{option} {error}{hint}") from error


def seed_url(text: str, canonical: Canonical) -> str | None:
    """The canonical URL of a start address, whose scheme may be missing; None if it is not a web address."""
    has_scheme = _SCHEME.match(text) is not None
    # A single word is more often a typing error than a hostname; with a scheme it is accepted.
    if _NO_SITE.match(text):
        return None
    if not (has_scheme or "." in text or ":" in text or text.startswith("localhost")):
        return None
    return canonical(text if has_scheme else f"https://{text}")


def subtree_path(text: str) -> str | None:
    """The path as canonical URLs spell it; None if it is not a path."""
    if not text.startswith("/") or text.startswith("//") or "?" in text or "#" in text:
        return None
    url = Canonical(())(f"https://example.org{text}")
    return path_of(url) if url else None
