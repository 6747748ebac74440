"""What its author writes to describe a crawler, in TOML or in Python: both are the same."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, get_args

import msgspec
from msgspec import Meta

from sterna import model
from sterna.crawler import spec_checks as checks
from sterna.crawler.seeds import seed_url
from sterna.crawler.spec_fields import FieldError, Part, wrong
from sterna.model import Predicate, Scalar
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical, site_of

GENTLE_SECONDS = 30.0

OptionValue = str | int | float | bool | tuple[str, ...] | None

Texts = Annotated[tuple[str, ...], Meta(description="a list of texts")]
Words = Annotated[tuple[str, ...], Meta(description="a list of words")]
Patterns = Annotated[tuple[str, ...], Meta(description="a list of regular expressions")]
Files = Annotated[tuple[str, ...], Meta(description='a list of files such as ["health.clp"]')]
Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(description="a text")]
Seconds = Annotated[
    Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description="seconds, more than 0 and up to 1e9")
]
Count = Annotated[Annotated[int, Meta(gt=0, le=2**53)] | None, Meta(description="a whole number, 1 or more")]
Size = Annotated[
    Annotated[int, Meta(gt=0, le=2**53)] | None,
    Meta(description='a number of bytes, 1 or more, or a size such as "64 MB"'),
]


class Scope(Part, frozen=True):
    """Where the crawler may go."""

    table: ClassVar[str] = "scope"

    stay: Annotated[model.Stay, Meta(description='"site", "domain" or "any"')] = "site"
    include: Patterns = ()
    exclude: Patterns = ()
    subtrees: Annotated[tuple[str, ...], Meta(description='a list of paths such as ["/docs/"]')] = ()
    depth: Annotated[int, Meta(ge=0, le=10**6, description="a whole number, 0 or more")] = 64
    pages: Count = None
    sitemaps: Flag = True
    drop_params: Texts = DEFAULT_DROP_PARAMS

    def check(self) -> None:
        checks.check_patterns("scope.include", self.include)
        checks.check_patterns("scope.exclude", self.exclude)
        checks.check_subtrees("scope.subtrees", self.subtrees)


class Select(Part, frozen=True):
    """Remote page selection: which pages are wanted. All that is said must hold."""

    table: ClassVar[str] = "select"

    keywords_any: Words = ()
    keywords_all: Words = ()
    weights: Annotated[dict[str, float], Meta(description="a table of words with their weights")] = (
        msgspec.field(default_factory=dict)
    )
    threshold: Annotated[float | None, Meta(description="a number")] = None
    phrases: Texts = ()
    matches: Patterns = ()
    languages: Annotated[tuple[str, ...], Meta(description='a list of languages such as ["en"]')] = ()
    content_types: Annotated[tuple[str, ...], Meta(description='a list of types such as ["text/html"]')] = ()
    where: Annotated[str, Meta(description="an SQL condition on the columns of a page")] = ""
    least_change: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] = 0.0

    def check(self) -> None:
        checks.check_weights(self.weights, self.threshold)
        checks.check_languages("select.languages", self.languages)
        checks.check_content_types("select.content_types", self.content_types)
        for field, part in self.parts():
            checks.check_predicate(f"select.{field}", part)
        checks.check_where("select.where", self.where)

    def parts(self) -> Iterator[tuple[str, Predicate]]:
        """What it asks of a page's contents: each field with the predicate that it stands for."""
        if self.content_types:
            yield "content_types", Predicate("type_in", "content_type", _once(self.content_types))
        if self.languages:
            yield "languages", Predicate("language_in", "language", _once(self.languages))
        if self.keywords_any:
            yield "keywords_any", Predicate("words_any", values=_once(self.keywords_any))
        if self.keywords_all:
            yield "keywords_all", Predicate("words_all", values=_once(self.keywords_all))
        if self.weights:
            yield "weights", Predicate("score", values=self._score())
        if self.phrases:
            yield "phrases", Predicate("phrase", values=_once(self.phrases))
        if self.matches:
            each = tuple(Predicate("regexp", values=(expression,)) for expression in _once(self.matches))
            yield "matches", Predicate("or", parts=each) if len(each) > 1 else each[0]

    def _score(self) -> tuple[Scalar, ...]:
        """The threshold, then each word with its weight."""
        score: list[Scalar] = [self.threshold]
        for word, weight in sorted(self.weights.items()):
            score += (word, weight)
        return tuple(score)


class Css(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CSS selector: the texts of what it finds, or the values of an attribute."""

    css: str
    attribute: str = ""


class Keep(Part, frozen=True):
    """Remote page filtering: what of a wanted page travels home besides its address."""

    table: ClassVar[str] = "keep"

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
        for name, selector in self.selectors.items():
            checks.check_name("keep.selectors", name)
            css = selector if isinstance(selector, str) else selector.css
            checks.check_css(f"keep.selectors.{name}", css)


class Politeness(Part, frozen=True):
    """How the crawler behaves towards sites; the names are those of `sterna crawl`."""

    table: ClassVar[str] = "politeness"

    delay: Annotated[float, Meta(ge=0, le=86_400, description="seconds from 0 to 86400")] = 1.0
    response_factor: Annotated[float, Meta(ge=0, le=1000, description="a number from 0 to 1000")] = 5.0
    gentle: Flag = False
    robots: Flag = True
    contact: Text = ""
    user_agent: Text = ""
    sender: Text = ""
    block: Annotated[tuple[str, ...], Meta(description="a list of hostnames and domains")] = ()

    def check(self) -> None:
        for field in ("contact", "user_agent", "sender"):
            checks.check_printable(f"politeness.{field}", getattr(self, field))


class Budget(Part, frozen=True):
    """What one visit may use before it must end; what is left out has the house's limit, or none."""

    table: ClassVar[str] = "budget"

    cpu_seconds: Seconds = None
    wall_seconds: Seconds = None
    memory_bytes: Size = None
    pages: Count = None
    requests: Count = None
    fetched_bytes: Size = None
    sent_bytes: Size = None
    scratch_bytes: Size = None
    facts: Count = None


class CrawlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a spec says of the crawl as a whole, under the names of a crawl's options."""

    seeds: tuple[str, ...] = ()
    max_pages: int | None = None
    stay: model.Stay = "site"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int = 64
    drop_params: tuple[str, ...] = DEFAULT_DROP_PARAMS
    sitemaps: bool = True
    delay: float = 1.0
    response_factor: float = 5.0
    gentle: bool = False
    ignore_robots: bool = False
    contact: str = ""
    user_agent: str = ""
    sender: str = ""
    block: tuple[str, ...] = ()


class Spec(Part, frozen=True):
    """A crawler as its author describes it; a name and seeds are enough."""

    name: Annotated[str, Meta(description='a name such as "health"')]
    seeds: Annotated[tuple[str, ...], Meta(description="a list of web addresses")] = ()
    facts: Annotated[tuple[Mapping[str, object], ...], Meta(description="a list of tables, a fact each")] = ()
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
        checks.check_name("name", self.name)
        checks.check_files("rules", self.rules)
        checks.check_files("gather", self.gather)
        for field, value, default in (("order", self.order, "breadth"), ("loading", self.loading, "links")):
            if value != default and not self.rules:
                raise wrong(field, value, f'"{default}", or come with rules that decide it')
        for fact in self.facts:
            checks.check_fact("facts", fact)
        self._check_journey()

    def seed_urls(self) -> tuple[str, ...]:
        """Where it starts, canonical: its seeds, and the root of each site of its journey that has none."""
        seeds = _urls("seeds", self.seeds, self.scope.drop_params)
        sites = {site_of(url) for url in seeds}
        roots = [f"{site}/" for site in self.journey_sites() if site not in sites]
        return tuple(dict.fromkeys((*seeds, *roots)))

    def journey_sites(self) -> tuple[str, ...]:
        """The sites that are visited one after the other; none if the crawler goes on no journey."""
        if self.journey is False:
            return ()
        stops = self.seeds if self.journey is True else self.journey
        return tuple(dict.fromkeys(site_of(url) for url in _urls("journey", stops, ())))

    def options(self) -> dict[str, OptionValue]:
        """What it says of the crawl as a whole, to be laid over the options of a crawl."""
        scope, politeness = self.scope, self.politeness
        options = CrawlOptions(
            seeds=self.seed_urls(),
            max_pages=_least(scope.pages, self.budget.pages),
            stay=scope.stay,
            include=scope.include,
            exclude=scope.exclude,
            max_depth=scope.depth,
            drop_params=scope.drop_params,
            sitemaps=scope.sitemaps,
            delay=politeness.delay,
            response_factor=politeness.response_factor,
            gentle=politeness.gentle,
            ignore_robots=not politeness.robots,
            contact=politeness.contact,
            user_agent=politeness.user_agent,
            sender=politeness.sender,
            block=politeness.block,
        )
        # Who crawls may be said once for all crawlers, by the environment or the collection.
        silent = {name for name in ("contact", "user_agent", "sender", "block") if not getattr(options, name)}
        return {name: value for name, value in msgspec.structs.asdict(options).items() if name not in silent}

    def _check_journey(self) -> None:
        sites = self.journey_sites()
        for url in self.seed_urls():
            if sites and site_of(url) not in sites:
                raise FieldError("seeds", f"hold {url}, which lies on no site of journey: add {site_of(url)}")
        if self.journey is True and len(sites) < 2:
            raise wrong("journey", True, "left out, or come with seeds on two sites or more")


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


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
