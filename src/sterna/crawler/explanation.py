"""What a crawler will do, in plain words."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sterna.crawler.compiler import compile_spec, gather_of
from sterna.crawler.grammar import describe
from sterna.crawler.pack import printable
from sterna.crawler.rules import outline, uses
from sterna.crawler.spec import GENTLE_SECONDS, Spec
from sterna.model import Crawler, Predicate, Program, Record, Scope

WIDTH = 100

_STAY = {
    "site": "It follows links within the sites it starts from: the same scheme, host and port.",
    "domain": "It follows links within the domains of the sites it starts from.",
    "any": "It follows links wherever they lead.",
}
_UNITS = {
    "cpu_seconds": "seconds of CPU time",
    "wall_seconds": "seconds of elapsed time",
    "memory_bytes": "bytes of memory for its rules",
    "pages": "pages",
    "requests": "requests",
    "fetched_bytes": "bytes fetched",
    "sent_bytes": "bytes sent home",
    "scratch_bytes": "bytes of scratch store",
    "facts": "facts of its own",
}


class Paragraph(Record, frozen=True):
    """A numbered paragraph: a text, a list below it, and a text after the list."""

    text: str
    items: Sequence[str] = ()
    after: str = ""


def explain(what: Spec | Crawler, folder: Path = Path()) -> str:
    """Numbered paragraphs, then the rules verbatim; a spec's files are read from `folder`."""
    spec = what if isinstance(what, Spec) else None
    crawler = compile_spec(what, folder) if isinstance(what, Spec) else what
    program, gather = crawler.program, gather_of(spec, folder) if spec else ()
    paragraphs = [
        _start(spec, crawler),
        _reach(crawler.scope, program),
        _before(crawler),
        _selection(program),
        _filtering(program),
    ]
    if rules := [str(file) for file in outline(program.rules)]:
        after = "They decide last: within its scope they may keep, drop and follow anything."
        paragraphs.append(Paragraph("Its rules see every page:", rules, after))
    if rules := [str(file) for file in outline(gather)]:
        text = "At home, rules process the returned facts and create facts and start pages for later visits:"
        paragraphs.append(Paragraph(text, rules))
    if spec:
        paragraphs += [_manners(spec), *_limits(spec)]
    numbered = "\n".join(_numbered(number, each) for number, each in enumerate(paragraphs, start=1))
    texts = [
        f"{source.name}:\n\n{textwrap.indent(source.text.strip(), '    ')}"
        for source in (*program.rules, *gather)
    ]
    return printable("\n\n".join((f"The crawler {crawler.name!r}", numbered, *texts)))


def _start(spec: Spec | None, crawler: Crawler) -> Paragraph:
    facts = f"It starts with {_amount(len(crawler.facts), 'fact')}." if crawler.facts else ""
    urls = spec.seed_urls() if spec else ()
    if not spec or not urls:
        return Paragraph("It starts where it is sent.", after=facts)
    sites = ", ".join(spec.journey_sites())
    way = f"It visits the sites one after the other and carries its facts along: {sites}." if sites else ""
    return Paragraph("It starts at:", urls, f"{way} {facts}")


def _reach(scope: Scope, program: Program) -> Paragraph:
    if program.drives_loading:
        text = "It follows no links by itself: it fetches only what its rules load."
    else:
        text = f"{_STAY[scope.stay]} It goes at most {_amount(scope.max_depth, 'link')} deep."
    sitemaps = "It reads" if scope.use_sitemaps else "It does not read"
    first = "URLs that its rules rank highest" if program.is_best_first else "Pages fewer links away"
    return Paragraph(f"{text} {first} come first. {sitemaps} the sitemaps that robots.txt names.")


def _before(crawler: Crawler) -> Paragraph:
    scope = crawler.scope
    limits = (
        ("is below", scope.subtrees),
        ("matches", scope.include),
        ("does not match", scope.exclude),
    )
    tests = [f"it {what} {_either(texts)}" for what, texts in limits if texts]
    after = "Start pages are always fetched." if tests else ""
    tests += map(describe, _conditions(crawler.program.prune))
    if uses(crawler.program.rules, "request"):
        tests.append("its rules do not refuse it")
    if not tests:
        return Paragraph("Every URL that it finds is fetched.")
    return Paragraph("A URL is fetched only if:", tests, after)


def _selection(program: Program) -> Paragraph:
    least = f"less than {_number(100 * program.least_change)} % of its words" if program.least_change else ""
    known = f"A known page counts as unchanged if {least} changed." if least else ""
    if program.select is None:
        return Paragraph(f"Every page is wanted. {known}")
    conditions = [describe(part) for part in _conditions(program.select)]
    all_of = " all of these hold" if len(conditions) > 1 else ""
    return Paragraph(f"A page is wanted if{all_of}:", conditions, known)


def _filtering(program: Program) -> Paragraph:
    keep = program.keep
    kept = ", ".join(("URL and status", *keep.fields))
    percent = _number(100 * keep.share)
    share = f" Only the first {percent} % of its text and html travels." if keep.share < 1 else ""
    found = [
        f"{each.name}: {f'the attribute {each.attribute}' if each.attribute else 'the text'} of {each.css}"
        for each in keep.selectors
    ]
    selectors = " So do the results of these CSS selectors:" if found else ""
    takes_all = program.select is None and not program.rules
    after = "" if takes_all else "Of an unwanted page home learns only that it was seen."
    return Paragraph(f"These fields of a wanted page travel home: {kept}.{share}{selectors}", found, after)


def _manners(spec: Spec) -> Paragraph:
    politeness = spec.politeness
    delay = max(politeness.delay, GENTLE_SECONDS) if politeness.gentle else politeness.delay
    pause = "It does not wait between requests: use this only for your own sites."
    if delay:
        longer = f", or {_number(politeness.response_factor)} times the last response time if that is longer"
        seconds = _amount(delay, "second") + (longer if politeness.response_factor else "")
        pause = f"Between requests to a site it waits {seconds}."
    ignores = "It ignores robots.txt: use this only for your own sites."
    strictly = " It keeps away from a site whose robots.txt is refused." if politeness.strict_robots else ""
    robots = f"It obeys robots.txt.{strictly}" if politeness.robots else ignores
    blocked = f"It never contacts {_either(politeness.block)}." if politeness.block else ""
    return Paragraph(f"{pause} {robots} {blocked}")


def _limits(spec: Spec) -> Iterator[Paragraph]:
    pages = f"The crawl ends at {_amount(spec.scope.pages, 'page')}." if spec.scope.pages else ""
    budget = msgspec.structs.asdict(spec.budget)
    limits = [f"{_number(budget[name])} {unit}" for name, unit in _UNITS.items() if budget[name]]
    if limits:
        yield Paragraph(f"{pages} At each site it may use at most:", limits, "What it found by then is kept.")
    elif pages:
        yield Paragraph(pages)


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


def _numbered(number: int, paragraph: Paragraph) -> str:
    lines = _wrapped(paragraph.text, f"{number:2}. ")
    for item in paragraph.items:
        lines += _wrapped(item, "      - ")
    return "\n".join(lines + _wrapped(paragraph.after, "    "))


def _wrapped(text: str, first: str) -> list[str]:
    # A URL or an expression must not be broken in two.
    wrapper = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = first, " " * len(first)
    return wrapper.wrap(text.strip())
