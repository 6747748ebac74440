"""What the fields of a spec may hold, beyond their types."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sterna.crawler.facts import fact_of
from sterna.crawler.grammar import check
from sterna.crawler.like import search_test
from sterna.crawler.seeds import subtree_path
from sterna.crawler.spec_fields import FieldError, wrong
from sterna.errors import UsageError
from sterna.model import Predicate
from sterna.web.extraction import check_selector

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")
_CONTENT_TYPE = re.compile(r"[\w.+-]+/(?:[\w.+-]+|\*)", re.ASCII)
_NAME = re.compile(r"\w[\w.-]{0,63}", re.ASCII)


def check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise wrong(field, name, "letters, digits, '_', '-' and '.', 64 of them at most")


def check_patterns(field: str, expressions: Iterable[str]) -> None:
    for expression in expressions:
        _hear(field, search_test, expression)


def check_subtrees(field: str, paths: Iterable[str]) -> None:
    for path in paths:
        if subtree_path(path) is None:
            raise wrong(field, path, 'a path such as "/docs/"')


def check_predicate(field: str, predicate: Predicate) -> None:
    _hear(field, check, predicate)


def check_weights(weights: Mapping[str, float], threshold: float | None) -> None:
    if threshold is not None and not weights:
        raise wrong("select.threshold", threshold, "left out, or come with select.weights")
    if weights and threshold is None:
        raise wrong("select.weights", weights, "left out, or come with select.threshold")


def check_languages(field: str, languages: Iterable[str]) -> None:
    for language in languages:
        if not _LANGUAGE.fullmatch(language):
            raise wrong(field, language, 'a language such as "en" or "pt-BR"')


def check_content_types(field: str, types: Iterable[str]) -> None:
    for each in types:
        if not _CONTENT_TYPE.fullmatch(each):
            raise wrong(field, each, 'a content type such as "text/html" or "image/*"')


def check_css(field: str, css: str) -> None:
    _hear(field, check_selector, css)


def check_fact(field: str, data: object) -> None:
    _hear(field, fact_of, data)


def check_where(field: str, where: str) -> None:
    if where:
        # sqlglot takes a while to load, and few specs speak SQL.
        from sterna.crawler.sql import plan_condition  # noqa: PLC0415

        _hear(field, plan_condition, where)


def check_printable(field: str, text: str) -> None:
    if not text.isprintable():
        raise wrong(field, text, "printable characters only")


def check_files(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name.strip() or "\0" in name:
            raise wrong(field, name, 'the name of a file such as "health.clp"')
        if name in seen:
            raise FieldError(field, f"names {name} twice: once is enough")
        seen.add(name)


def _hear(field: str, judge: Callable[[Any], object], value: object) -> None:
    """Lets another module judge the value, and adds the field to what it says."""
    try:
        judge(value)
    except UsageError as error:
        raise FieldError(field, f"cannot be: {error}") from error
