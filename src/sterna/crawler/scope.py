"""Which URLs of a site a crawler wants."""

from collections.abc import Iterable

from sterna.crawler.like import TextTest, search_test
from sterna.errors import UsageError
from sterna.model import Scope
from sterna.web.urls import is_trap, path_of


class ScopeRules:
    """A scope made ready to judge URLs."""

    def __init__(self, scope: Scope) -> None:
        self._include = _tests("--include", scope.include)
        self._exclude = _tests("--exclude", scope.exclude)
        self._subtrees = tuple(subtree.rstrip("/") for subtree in scope.subtrees)

    def admits(self, url: str) -> bool:
        """True if the URL is wanted; what looks like an endless path is not."""
        if self._include and not any(finds(url) for finds in self._include):
            return False
        if any(finds(url) for finds in self._exclude):
            return False
        return self._is_below(url) and not is_trap(url)

    def _is_below(self, url: str) -> bool:
        if not self._subtrees:
            return True
        path = path_of(url).partition("?")[0]
        return any(path == subtree or path.startswith(f"{subtree}/") for subtree in self._subtrees)


def _tests(option: str, expressions: Iterable[str]) -> list[TextTest]:
    return [_test(option, expression) for expression in expressions]


def _test(option: str, expression: str) -> TextTest:
    try:
        return search_test(expression)
    except UsageError as error:
        raise UsageError(f"{option} {error}") from error
