"""The compiler: from a spec, a query or a list of fields to the crawler that travels; deterministic."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from sterna import model
from sterna.crawler import facts
from sterna.crawler.algebra import joined, or_none, prune_of
from sterna.crawler.clp import MAX_SOURCE_BYTES
from sterna.crawler.grammar import check, columns_of
from sterna.crawler.rules import check_rules, needs_of
from sterna.crawler.scope import ScopeRules, subtree_path
from sterna.crawler.spec import Css, Keep, Select, Spec, condition_of
from sterna.crawler.spec_fields import Each, FieldError, wrong
from sterna.errors import UsageError
from sterna.model import FIELDS, Crawler, Predicate, Program, Source, fields_among
from sterna.web.extraction import parse_selector

if TYPE_CHECKING:
    from sterna.crawler.sql.plan import QueryPlan  # type only: importing it would load sqlglot

# The short names of `--keep`; the language costs nothing when links are read.
_KEPT: dict[str, tuple[str, ...]] = {"all": model.DEFAULT_FIELDS, "links": ("language", "links")}


def compile_spec(spec: Spec, folder: Path) -> Crawler:
    """The crawler that a spec describes; its rule files are read from `folder`."""
    prune, select = _selection(spec.select)
    program = Program(
        prune=prune,
        select=select,
        keep=_keep(spec.keep),
        rules=_sources("rules", spec.rules, folder),
        is_best_first=spec.order == "best",
        drives_loading=spec.loading == "rules",
        least_change=spec.select.least_change,
    )
    scope = spec.scope
    return Crawler(
        name=spec.name,
        scope=model.Scope(
            stay=scope.stay,
            include=scope.include,
            exclude=scope.exclude,
            subtrees=tuple(path for each in scope.subtrees if (path := subtree_path(each))),
            max_depth=scope.depth,
            drop_params=scope.drop_params,
            use_sitemaps=scope.sitemaps,
        ),
        program=_with_needs(program),
        facts=tuple(facts.encode(facts.fact_of(fact)) for fact in spec.facts),
    )


def compile_query(plan: "QueryPlan", name: str) -> Crawler:
    program = Program(prune=plan.prune, select=plan.select, keep=model.Keep(fields=plan.fields))
    return Crawler(name=name, program=_with_needs(program))


def crawler_of_fields(kept: str) -> Crawler:
    """The crawler that keeps these fields of every page: `all`, `links`, or a comma-separated list."""
    fields = _KEPT.get(kept) or tuple(name.strip() for name in kept.split(","))
    if not set(fields) <= {"url", *FIELDS}:
        raise UsageError(f"--keep {kept} is invalid: use all, links, or some of {', '.join(FIELDS)}")
    return Crawler(program=_with_needs(Program(keep=model.Keep(fields=fields_among(fields)))))


def gather_of(spec: Spec, folder: Path) -> tuple[Source, ...]:
    """The rules that run at home over the facts that a crawler returned."""
    return _sources("gather", spec.gather, folder)


def budget_of(spec: Spec) -> model.Budget:
    """The limits of a visit: the defaults, overridden by the spec."""
    given = {name: value for name, value in msgspec.structs.asdict(spec.budget).items() if value is not None}
    return replace(model.Budget(), **given)


def check_crawler(crawler: Crawler) -> None:
    """Raises UsageError if a crawler, possibly a stranger's, is invalid."""
    program = crawler.program
    ScopeRules(crawler.scope)
    for predicate in (program.prune, program.select):
        if predicate:
            check(predicate)
    for selector in program.keep.selectors:
        parse_selector(selector.css)
    check_rules(program.rules)
    if not 0 <= program.least_change <= 1:
        raise UsageError(f"least_change is {program.least_change}: must be a number from 0 to 1")
    try:
        for fact in crawler.facts:
            facts.decode(fact)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _selection(select: Select) -> tuple[Predicate | None, Predicate | None]:
    """The predicates that are judged before and after a fetch."""
    prune, parts = None, [part for _, part in select.parts()]
    if condition := condition_of(select.where):
        prune = prune_of(condition)
        parts.append(condition)
    whole = or_none(joined("and", parts))
    if whole:
        Each(check).check("select", whole)
    return prune, whole


def _with_needs(program: Program) -> Program:
    """The program with the fields that must be read of a page."""
    wanted: set[str] = {*program.keep.fields, *needs_of(program.rules)}
    if program.select:
        wanted |= columns_of(program.select)
        if "language" in wanted & columns_of(program.select):
            wanted.add("text")  # of which it is guessed where the page does not say it
    if not program.drives_loading:
        wanted.add("links")
    if program.least_change:
        wanted.add("text")
    return replace(program, needs=fields_among(wanted))


def _keep(keep: Keep) -> model.Keep:
    selectors = []
    for name, given in sorted(keep.selectors.items()):
        selector = Css(css=given) if isinstance(given, str) else given
        selectors.append(model.Selector(name, selector.css, selector.attribute))
    return model.Keep(fields=fields_among(keep.fields), selectors=tuple(selectors), share=keep.share)


def _sources(field: str, names: Iterable[str], folder: Path) -> tuple[Source, ...]:
    sources = []
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                content = file.read(MAX_SOURCE_BYTES + 1)
            if len(content) > MAX_SOURCE_BYTES:
                raise FieldError(field, f"names {name}, which is larger than {MAX_SOURCE_BYTES:,} bytes")
            sources.append(Source(name, content.decode("utf-8-sig")))
        except OSError as error:
            raise wrong(field, name, f"a readable file (in {folder}: {error.strerror})") from error
        except UnicodeDecodeError as error:
            raise FieldError(field, f"names {name}, which is not UTF-8") from error
    check_rules(tuple(sources))
    return tuple(sources)
