"""The spec: how an author describes a crawler, in TOML or, equally, in Python."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

import msgspec
from msgspec import Meta

from sterna import model, toml
from sterna.crawler.facts import fact_of
from sterna.crawler.grammar import check
from sterna.crawler.scope import seed_url, subtree_path
from sterna.crawler.spec_fields import Each, FieldError, SpecTable, table_of, wrong
from sterna.crawler.text_tests import search_test
from sterna.errors import ConfigError, SpecError
from sterna.model import Predicate
from sterna.web.extraction import MAX_SELECTORS, parse_selector
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical, site_of

GENTLE_SECONDS = 30.0
MAX_SPEC_BYTES = 1024 * 1024

OptionValue = str | int | float | bool | tuple[str, ...] | None

_NAME = Each.match(r"\w[\w.-]{0,63}", "letters, digits, '_', '-' and '.', 64 of them at most")


def condition_of(where: str) -> Predicate | None:
    """The condition in SQL as a predicate; None if there is none, UsageError if it is invalid."""
    if not where:
        return None
    # sqlglot takes a while to load, and few specs use SQL.
    from sterna.crawler.sql.plan import plan_condition  # noqa: PLC0415

    return plan_condition(where)


Texts = Annotated[tuple[str, ...], Meta(description="a list of texts")]
Words = Annotated[tuple[str, ...], Meta(description="a list of words")]
Patterns = Annotated[tuple[str, ...], Meta(description="a list of regular expressions"), Each(search_test)]
Subtrees = Annotated[
    tuple[str, ...],
    Meta(description='a list of paths such as ["/docs/"]'),
    Each(lambda path: subtree_path(path) is not None, 'a path such as "/docs/"'),
]
Languages = Annotated[
    tuple[str, ...],
    Meta(description='a list of languages such as ["en"]'),
    Each.match(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*", 'a language such as "en" or "pt-BR"'),
]
ContentTypes = Annotated[
    tuple[str, ...],
    Meta(description='a list of types such as ["text/html"]'),
    Each.match(r"[\w.+-]+/(?:[\w.+-]+|\*)", 'a content type such as "text/html" or "image/*"'),
]
Condition = Annotated[str, Meta(description="an SQL condition on the columns of a page"), Each(condition_of)]
Files = Annotated[
    tuple[str, ...],
    Meta(description='a list of files such as ["health.clp"]'),
    Each(lambda name: bool(name.strip()) and "\0" not in name, 'the name of a file such as "health.clp"'),
]
Facts = Annotated[
    tuple[Mapping[str, object], ...], Meta(description="a list of tables, a fact each"), Each(fact_of)
]
Flag = Annotated[bool, Meta(description="true or false")]
Line = Annotated[str, Meta(description="a text"), Each(str.isprintable, "printable characters only")]
Seconds = Annotated[
    Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description="seconds, more than 0 and up to 1e9")
]
Count = Annotated[Annotated[int, Meta(gt=0, le=2**53)] | None, Meta(description="a whole number, 1 or more")]
Size = Annotated[
    Annotated[int, Meta(gt=0, le=2**53)] | None,
    Meta(description='a number of bytes, 1 or more, or a size such as "64 MB"'),
]


class Scope(SpecTable, frozen=True):
    """Where the crawler may go."""

    stay: Annotated[model.Stay, Meta(description='"site", "domain" or "any"')] = "site"
    include: Patterns = ()
    exclude: Patterns = ()
    subtrees: Subtrees = ()
    depth: Annotated[int, Meta(ge=0, le=10**6, description="a whole number, 0 or more")] = 64
    pages: Count = None
    sitemaps: Flag = True
    drop_params: Texts = DEFAULT_DROP_PARAMS
    requisites: Flag = False
    max_requisites: Annotated[int, Meta(gt=0, le=2**53, description="a whole number, 1 or more")] = 20_000
    max_requisite_bytes: Annotated[
        int, Meta(gt=0, le=2**53, description='a number of bytes, 1 or more, or a size such as "64 MB"')
    ] = 2 * 10**9


class Select(SpecTable, frozen=True):
    """Remote page selection: which pages are wanted. All conditions must hold."""

    keywords_any: Words = ()
    keywords_all: Words = ()
    weights: Annotated[dict[str, float], Meta(description="a table of words with their weights")] = (
        msgspec.field(default_factory=dict)
    )
    threshold: Annotated[float | None, Meta(description="a number")] = None
    phrases: Texts = ()
    matches: Patterns = ()
    languages: Languages = ()
    content_types: ContentTypes = ()
    where: Condition = ""
    least_change: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] = 0.0

    def check(self) -> None:
        if self.threshold is not None and not self.weights:
            raise wrong("select.threshold", self.threshold, "left out, or come with select.weights")
        if self.weights and self.threshold is None:
            raise wrong("select.weights", self.weights, "left out, or come with select.threshold")
        for field, part in self.parts():
            Each(check).check(f"select.{field}", part)

    def parts(self) -> Iterator[tuple[str, Predicate]]:
        """The conditions on a page's content: each field with its predicate."""
        if self.content_types:
            yield "content_types", Predicate("type_in", "content_type", _once(self.content_types))
        if self.languages:
            yield "languages", Predicate("language_in", "language", _once(self.languages))
        if self.keywords_any:
            yield "keywords_any", Predicate("words_any", values=_once(self.keywords_any))
        if self.keywords_all:
            yield "keywords_all", Predicate("words_all", values=_once(self.keywords_all))
        if self.weights:
            weighed = (each for pair in sorted(self.weights.items()) for each in pair)
            yield "weights", Predicate("score", values=(self.threshold, *weighed))
        if self.phrases:
            yield "phrases", Predicate("phrase", values=_once(self.phrases))
        if self.matches:
            each = tuple(Predicate("regexp", values=(expression,)) for expression in _once(self.matches))
            yield "matches", Predicate("or", parts=each) if len(each) > 1 else each[0]


class Css(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CSS selector: the texts of the elements it finds, or the values of an attribute."""

    css: str
    attribute: str = ""


class Keep(SpecTable, frozen=True):
    """Remote page filtering: which fields of a wanted page travel home besides its URL."""

    fields: Annotated[
        tuple[Literal[model.Field, "url"], ...],
        Meta(description=f"a list of: url, {', '.join(get_args(model.Field))}"),
    ] = model.DEFAULT_FIELDS
    selectors: Annotated[
        dict[str, str | Css],
        Meta(description='a table of names with a CSS selector each, or {css = "img", attribute = "src"}'),
    ] = msgspec.field(default_factory=dict)
    share: Annotated[float, Meta(gt=0, le=1, description="a number, more than 0 and up to 1")] = 1.0

    def check(self) -> None:
        if len(self.selectors) > MAX_SELECTORS:
            raise SpecError(
                f"keep.selectors: {len(self.selectors):,} are too many ({MAX_SELECTORS:,} at most)"
            )
        for name, selector in self.selectors.items():
            _NAME.check("keep.selectors", name)
            css = selector if isinstance(selector, str) else selector.css
            Each(parse_selector).check(f"keep.selectors.{name}", css)


class Politeness(SpecTable, frozen=True):
    """How the crawler behaves towards sites; the names are those of `sterna crawl`."""

    delay: Annotated[float, Meta(ge=0, le=86_400, description="seconds from 0 to 86400")] = 1.0
    response_factor: Annotated[float, Meta(ge=0, le=1000, description="a number from 0 to 1000")] = 5.0
    gentle: Flag = False
    robots: Flag = True
    strict_robots: Flag = False
    contact: Line = ""
    user_agent: Line = ""
    sender: Line = ""
    block: Annotated[tuple[str, ...], Meta(description="a list of hostnames and domains")] = ()

    def check(self) -> None:
        if self.strict_robots and not self.robots:
            raise wrong("politeness.strict_robots", True, "left out, or come with robots = true")


class Budget(SpecTable, frozen=True):
    """The limits of one visit; a limit left out is the default one, or none."""

    cpu_seconds: Seconds = None
    wall_seconds: Seconds = None
    memory_bytes: Size = None
    pages: Count = None
    requests: Count = None
    fetched_bytes: Size = None
    sent_bytes: Size = None
    scratch_bytes: Size = None
    facts: Count = None


_SCOPE, _POLITENESS = Scope(), Politeness()


class CrawlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a crawl that a spec contains, under the names of the crawl's options."""

    seeds: tuple[str, ...] = ()
    max_pages: int | None = None
    stay: model.Stay = _SCOPE.stay
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int = _SCOPE.depth
    drop_params: tuple[str, ...] = _SCOPE.drop_params
    sitemaps: bool = _SCOPE.sitemaps
    requisites: bool = _SCOPE.requisites
    max_requisites: int = _SCOPE.max_requisites
    max_requisite_bytes: int = _SCOPE.max_requisite_bytes
    delay: float = _POLITENESS.delay
    response_factor: float = _POLITENESS.response_factor
    gentle: bool = _POLITENESS.gentle
    ignore_robots: bool = not _POLITENESS.robots
    strict_robots: bool = _POLITENESS.strict_robots
    contact: str = ""
    user_agent: str = ""
    sender: str = ""
    block: tuple[str, ...] = ()


_LATER = ("requisites", "max_requisites", "max_requisite_bytes", "strict_robots")


class Spec(SpecTable, frozen=True):
    """The description of a crawler; a name and seeds are enough."""

    is_nested: ClassVar[bool] = False

    name: Annotated[str, Meta(description='a name such as "health"'), _NAME]
    seeds: Annotated[tuple[str, ...], Meta(description="a list of web addresses")] = ()
    facts: Facts = ()
    journey: Annotated[bool | tuple[str, ...], Meta(description="true, false or a list of sites")] = False
    scope: Scope = Scope()
    select: Select = Select()
    keep: Keep = Keep()
    rules: Files = ()
    gather: Files = ()
    order: Annotated[Literal["breadth", "best"], Meta(description='"breadth" or "best"')] = "breadth"
    loading: Annotated[Literal["links", "rules"], Meta(description='"links" or "rules"')] = "links"
    politeness: Politeness = Politeness()
    budget: Budget = Budget()

    def check(self) -> None:
        for field, names in (("rules", self.rules), ("gather", self.gather)):
            for name in names:
                if names.count(name) > 1:
                    raise FieldError(field, f"names {name} twice: once is enough")
        for field, value, default in (("order", self.order, "breadth"), ("loading", self.loading, "links")):
            if value != default and not self.rules:
                raise wrong(field, value, f'"{default}", or come with rules that decide it')
        sites = self.journey_sites()
        for url in self.seed_urls():
            if sites and site_of(url) not in sites:
                raise FieldError("seeds", f"contain {url}, which is not on the journey: add {site_of(url)}")
        if self.journey is True and len(sites) < 2:
            raise wrong("journey", True, "left out, or come with seeds on two sites or more")

    def seed_urls(self) -> tuple[str, ...]:
        """The canonical start URLs: its seeds, and the root of each site of its journey without a seed."""
        seeds = _urls("seeds", self.seeds, self.scope.drop_params)
        sites = {site_of(url) for url in seeds}
        roots = [f"{site}/" for site in self.journey_sites() if site not in sites]
        return tuple(dict.fromkeys((*seeds, *roots)))

    def journey_sites(self) -> tuple[str, ...]:
        """The sites that are visited one after the other; empty without a journey."""
        if self.journey is False:
            return ()
        stops = self.seeds if self.journey is True else self.journey
        return tuple(dict.fromkeys(site_of(url) for url in _urls("journey", stops, ())))

    def options(self) -> dict[str, OptionValue]:
        """Its settings of the crawl, which override the crawl's own options."""
        scope, politeness = self.scope, self.politeness
        names = CrawlOptions.__struct_fields__
        same = {
            name: getattr(part, name)
            for part in (scope, politeness)
            for name in part.__struct_fields__
            if name in names
        }
        options = CrawlOptions(
            **same,
            seeds=self.seed_urls(),
            max_pages=min(filter(None, (scope.pages, self.budget.pages)), default=None),
            max_depth=scope.depth,
            ignore_robots=not politeness.robots,
        )
        # The environment or the collection may name the operator once for all crawlers.
        silent = {name for name in ("contact", "user_agent", "sender", "block") if not getattr(options, name)}
        # Earlier releases do not know these, and refuse a crawler that has them.
        usual = CrawlOptions()
        silent |= {name for name in _LATER if getattr(options, name) == getattr(usual, name)}
        return {name: value for name, value in msgspec.structs.asdict(options).items() if name not in silent}


def load_spec(path: Path) -> Spec:
    """The spec in a TOML file; SpecError names file, line, field, what was found and what is allowed."""
    try:
        text, data = toml.read(path, max_bytes=MAX_SPEC_BYTES)
    except ConfigError as error:
        raise SpecError(str(error)) from error
    try:
        spec = table_of(Spec, data)
        for field, names in (("rules", spec.rules), ("gather", spec.gather)):
            for name in names:
                if not (path.parent / name).is_file():
                    raise wrong(field, name, f"an existing file (looked for in {path.parent})")
    except FieldError as error:
        line = toml.line_of(text, (*error.field.split("."), 0))  # 0: the first of a list of tables
        raise SpecError(f"{path}:{line}: {error}" if line else f"{path}: {error}") from error
    return spec


def _urls(field: str, texts: tuple[str, ...], drop_params: tuple[str, ...]) -> list[str]:
    canonical = Canonical(drop_params)
    urls = []
    for text in texts:
        url = seed_url(text, canonical)
        if url is None:
            raise wrong(field, text, 'a web address such as "https://www.example.org/"')
        urls.append(url)
    return urls


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
