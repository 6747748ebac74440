"""Which URLs of a site a crawler wants."""

import re

from sterna.errors import UsageError
from sterna.model import Scope
from sterna.web.urls import is_trap


class ScopeRules:
    """A scope made ready to judge URLs."""

    def __init__(self, scope: Scope) -> None:
        self._include = _pattern("--include", scope.include)
        self._exclude = _pattern("--exclude", scope.exclude)

    def admits(self, url: str) -> bool:
        """True if the URL is wanted; what looks like an endless path is not."""
        if self._include and not self._include.search(url):
            return False
        if self._exclude and self._exclude.search(url):
            return False
        return not is_trap(url)


def _pattern(option: str, expressions: tuple[str, ...]) -> re.Pattern[str] | None:
    for expression in expressions:
        try:
            re.compile(expression)
        except re.error as error:
            raise UsageError(f"{option} {expression!r} is not a regular expression: {error}") from error
    return re.compile("|".join(f"(?:{each})" for each in expressions)) if expressions else None
