"""The plan of a crawler in plain words, for who wants to know what it will do before it goes."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sterna.crawler.compiler import compile_spec, gather_of
from sterna.crawler.outline import outline, printable
from sterna.crawler.rules import uses
from sterna.crawler.spec import GENTLE_SECONDS, Spec
from sterna.crawler.wording import describe
from sterna.model import Crawler, Predicate, Program, Record, Scope, Source

WIDTH = 100

_STAY = {
    "site": "It follows links within the sites it starts from: the same scheme, host and port.",
    "domain": "It follows links within the domains of the sites it starts from.",
    "any": "It follows links wherever they lead.",
}
_UNITS = {
    "cpu_seconds": "seconds of computing",
    "wall_seconds": "seconds of time",
    "memory_bytes": "bytes of memory for its rules",
    "pages": "pages",
    "requests": "requests",
    "fetched_bytes": "bytes fetched",
    "sent_bytes": "bytes sent home",
    "scratch_bytes": "bytes of scratch store",
    "facts": "facts of its own",
}


class Step(Record, frozen=True):
    """One numbered step: what is said, a list below it, and what is said after the list."""

    text: str
    items: Sequence[str] = ()
    after: str = ""


def explain(what: Spec | Crawler, folder: Path = Path()) -> str:
    """The plan in numbered steps, then the rules as they are; a spec's files are looked for in `folder`."""
    if isinstance(what, Spec):
        return _explained(compile_spec(what, folder), what, gather_of(what, folder))
    return _explained(what, None, ())


def _explained(crawler: Crawler, spec: Spec | None, gather: tuple[Source, ...]) -> str:
    program = crawler.program
    steps = [
        _start(spec, crawler),
        _reach(crawler.scope, program),
        _before(crawler),
        _selection(program),
        _filtering(program),
        *_deciding(program),
        *_gathering(gather),
        *_manners(spec),
        *_limits(spec),
    ]
    numbered = "\n".join(_numbered(number, step) for number, step in enumerate(steps, start=1))
    texts = [_quoted(source) for source in (*program.rules, *gather)]
    return printable("\n\n".join((f"The crawler {crawler.name!r}", numbered, *texts)))


# -- the steps ---------------------------------------------------------------------------------------------


def _start(spec: Spec | None, crawler: Crawler) -> Step:
    facts = f"It sets out with {_amount(len(crawler.facts), 'fact')}." if crawler.facts else ""
    urls = spec.seed_urls() if spec else ()
    if not spec or not urls:
        return Step("It starts where it is sent.", after=facts)
    sites = spec.journey_sites()
    if sites:
        way = f"It visits the sites one after the other, and keeps its facts on the way: {', '.join(sites)}."
        return Step("It starts at:", urls, f"{way} {facts}")
    return Step("It starts at:", urls, facts)


def _reach(scope: Scope, program: Program) -> Step:
    if program.drives_loading:
        text = "It follows no links by itself: only what its rules load is fetched."
    else:
        text = f"{_STAY[scope.stay]} It goes at most {_amount(scope.max_depth, 'link')} deep."
    sitemaps = "It reads" if scope.use_sitemaps else "It does not read"
    nearest = "Pages that are fewer links away come first."
    order = "URLs that its rules rank highest come first." if program.is_best_first else nearest
    return Step(f"{text} {order} {sitemaps} the sitemaps that robots.txt names.")


def _before(crawler: Crawler) -> Step:
    tests = [*_scope_tests(crawler.scope), *map(describe, _conditions(crawler.program.prune))]
    if uses(crawler.program.rules, "request"):
        tests.append("its rules do not refuse it")
    if not tests:
        return Step("Before a fetch nothing is asked: every URL that it comes to is fetched.")
    after = "A start page is fetched whatever its address."
    return Step("A URL is fetched only if:", tests, after if any(_scope_tests(crawler.scope)) else "")


def _scope_tests(scope: Scope) -> Iterator[str]:
    if scope.subtrees:
        yield f"it lies below {_either(scope.subtrees)}"
    if scope.include:
        yield f"{_either(scope.include)} is found in it"
    if scope.exclude:
        yield f"{_either(scope.exclude)} is not found in it"


def _selection(program: Program) -> Step:
    least = f"less than {_number(100 * program.least_change)} % of its words" if program.least_change else ""
    known = f"One that is known counts as unchanged if {least} changed." if least else ""
    if program.select is None:
        return Step(f"Every page is wanted. {known}")
    conditions = [describe(part) for part in _conditions(program.select)]
    all_of = " all of this holds" if len(conditions) > 1 else ""
    return Step(f"A page is wanted if{all_of}:", conditions, known)


def _filtering(program: Program) -> Step:
    keep = program.keep
    kept = ", ".join(("address and status", *keep.fields))
    share = (
        f" Of its text and html only the first {_number(100 * keep.share)} % travels."
        if keep.share < 1
        else ""
    )
    found = [
        f"{each.name}: {f'the attribute {each.attribute}' if each.attribute else 'the text'} of {each.css}"
        for each in keep.selectors
    ]
    selectors = " So does what these CSS selectors find in it:" if found else ""
    takes_all = program.select is None and not program.rules
    after = "" if takes_all else "Of a page that is not wanted home learns only that it was seen."
    return Step(f"Of a wanted page these travel home: {kept}.{share}{selectors}", found, after)


def _deciding(program: Program) -> Iterator[Step]:
    if program.rules:
        after = "Their word comes last: they may keep, drop and follow what they like within its reach."
        yield Step("Its rules see every page:", list(map(str, outline(program.rules))), after)


def _gathering(gather: tuple[Source, ...]) -> Iterator[Step]:
    if gather:
        text = "At home, rules see the facts that came back, and make facts and start pages for later visits:"
        yield Step(text, list(map(str, outline(gather))))


def _manners(spec: Spec | None) -> Iterator[Step]:
    if spec is None:
        return
    politeness = spec.politeness
    delay = max(politeness.delay, GENTLE_SECONDS) if politeness.gentle else politeness.delay
    pause = "It does not wait between two requests: only for sites of your own."
    if delay:
        longer = f", or {_number(politeness.response_factor)} times as long as the last answer took"
        seconds = _amount(delay, "second") + (longer if politeness.response_factor else "")
        pause = f"Before it asks a site again it waits {seconds}."
    robots = (
        "It obeys robots.txt." if politeness.robots else "It ignores robots.txt: only for sites of your own."
    )
    blocked = f"It never asks {_either(politeness.block)}." if politeness.block else ""
    yield Step(f"{pause} {robots} {blocked}")


def _limits(spec: Spec | None) -> Iterator[Step]:
    if spec is None:
        return
    pages = f"The crawl ends at {_amount(spec.scope.pages, 'page')}." if spec.scope.pages else ""
    budget = msgspec.structs.asdict(spec.budget)
    limits = [f"{_number(budget[name])} {unit}" for name, unit in _UNITS.items() if budget[name]]
    if limits:
        yield Step(f"{pages} At each site it may use at most:", limits, "What it found until then is kept.")
    elif pages:
        yield Step(pages)


# -- their words -------------------------------------------------------------------------------------------


def _conditions(predicate: Predicate | None) -> tuple[Predicate, ...]:
    """The parts that must all hold."""
    if predicate is None:
        return ()
    return predicate.parts if predicate.op == "and" else (predicate,)


def _either(texts: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _amount(number: float, unit: str) -> str:
    return f"{_number(number)} {unit}" if number == 1 else f"{_number(number)} {unit}s"


def _number(number: float) -> str:
    return f"{number:,.10g}" if isinstance(number, float) else f"{number:,}"


# -- on paper ----------------------------------------------------------------------------------------------


def _numbered(number: int, step: Step) -> str:
    lines = [_wrapped(step.text, first=f"{number:2}. ", rest=4)]
    lines += [_wrapped(item, first="      - ", rest=8) for item in step.items]
    if step.after.strip():
        lines.append(_wrapped(step.after, first="    ", rest=4))
    return "\n".join(lines)


def _wrapped(text: str, *, first: str, rest: int) -> str:
    # An address or an expression that is broken in two would be wrong.
    return textwrap.fill(
        text.strip(),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _quoted(source: Source) -> str:
    return f"{source.name}:\n\n{textwrap.indent(source.text.strip(), '    ')}"
