"""The words of a search as a query of tantivy: which pages match, and how well.

Words, "phrases", title:word, url:word, site:host, and -word to exclude. Every text is a valid query; what
exceeds the bounds is left out, with a note.

Every word must occur on the page. A page scores higher if a word is in its title, a heading, a keyword or the
URL, and higher still if the words stand side by side in the title. Each word is looked up once for every
analysis that occurs in the index.
"""

import re
from collections.abc import Mapping, Sequence

from tantivy import Occur, Query, Schema, TextAnalyzer

from sterna.archive.disk import clean
from sterna.model import Record
from sterna.search import schema

MAX_CHARS = 2_000
MAX_TERMS = 32

BOOSTS = {schema.TITLE: 3.0, schema.HEADS: 1.5, schema.ADDRESS: 1.0}
TITLE_PHRASE_BOOST = 3.0

# Where a term must be, by the name of the field before it.
_FIELDS = {"": schema.ALL, "title": schema.TITLE, "url": schema.ADDRESS}

# An optional minus and field, then a phrase (its end may be missing) or anything without spaces.
_PART = re.compile(
    r'(?P<minus>-?)(?P<field>(?:title|url|site):)?(?:"(?P<phrase>[^"]*)(?:"|\Z)|(?P<word>[^\s"]+))', re.I
)


class Term(Record, frozen=True):
    """A word or phrase, in which field, and whether it is required or excluded."""

    text: str
    where: str = ""
    is_phrase: bool = False
    is_excluded: bool = False


class ParsedQuery(Record, frozen=True, kw_only=True):
    terms: tuple[Term, ...] = ()
    sites: tuple[str, ...] = ()  # a page must be of one of these
    excluded_sites: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse(words: str) -> ParsedQuery:
    """The parts of the typed words; never fails."""
    notes = []
    text = schema.normalized(clean(words[: MAX_CHARS + 1]))
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS]
        notes.append(f"only the first {MAX_CHARS:,} characters were read")
    terms: list[Term] = []
    sites: dict[bool, list[str]] = {False: [], True: []}
    for part in _PART.finditer(text):
        is_excluded = bool(part["minus"])
        field = (part["field"] or "").rstrip(":").lower()
        content = part["phrase"] if part["phrase"] is not None else part["word"]
        if len(terms) + len(sites[False]) + len(sites[True]) >= MAX_TERMS:
            notes.append(f"only the first {MAX_TERMS} words were searched")
            break
        if field == "site":
            host = host_named(content)
            sites[is_excluded].extend([host] if host else [])
        elif content.strip():
            terms.append(Term(content.strip(), field, part["phrase"] is not None, is_excluded))
    return ParsedQuery(
        terms=tuple(dict.fromkeys(terms)),
        sites=tuple(sites[False]),
        excluded_sites=tuple(sites[True]),
        notes=tuple(notes),
    )


def host_named(content: str) -> str:
    """The host or whole site that `site:` names; a path after it is ignored."""
    scheme, separator, rest = content.strip().lower().rpartition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].strip(".")
    if not authority.isascii():
        try:
            authority = authority.encode("idna").decode()
        except UnicodeError:
            return ""
    return f"{scheme}{separator}{authority}" if authority else ""


# -- as tantivy takes it -----------------------------------------------------------------------------------


class Composed(Record, frozen=True, kw_only=True, gc=True):
    """A query; `wanted` is the part that snippets mark, `lost` are words without any searchable part."""

    every: Query | None  # all words; None: there is nothing to look for
    some: Query | None  # any of the words, if there are several
    wanted: Query | None
    lost: tuple[str, ...]


class Composer:
    """Makes queries for an index in which these analyses occur."""

    def __init__(self, fields: Schema, analyzers: Mapping[str, TextAnalyzer]) -> None:
        self._schema = fields
        self._analyzers = analyzers

    def compose(self, parsed: ParsedQuery) -> Composed:
        must: list[Query] = []
        should: list[Query] = []
        must_not: list[Query] = []
        lost: list[str] = []
        for term in parsed.terms:
            found = self._analysed(_FIELDS[term.where], term.text)
            if not found:
                lost.append(term.text)
            elif term.is_excluded:
                must_not.append(_any(found))
            else:
                must.append(_any(found))
                should += [] if term.where else self._better(term.text)
        wanted = [term for term in parsed.terms if not term.is_excluded and not term.where]
        if len(wanted) > 1:
            titles = self._analysed(schema.TITLE, " ".join(term.text for term in wanted))
            should += [Query.boost_query(query, TITLE_PHRASE_BOOST) for query in titles]
        hosts = [self._host(host) for host in parsed.sites]
        filters = [Query.const_score_query(_any(hosts), 0.0)] if hosts else []
        if not must and not parsed.sites:
            return Composed(every=None, some=None, wanted=None, lost=tuple(lost))
        must_not += [Query.const_score_query(self._host(host), 0.0) for host in parsed.excluded_sites]
        some = None
        if len(must) > 1:
            some = _joined([_any([*must, *should]), *filters], [], must_not)
        if not must:
            must = [Query.const_score_query(filters.pop(0), 1.0)]
        return Composed(
            every=_joined([*must, *filters], should, must_not),
            some=some,
            wanted=_any([*must, *should]),
            lost=tuple(lost),
        )

    def _better(self, text: str) -> list[Query]:
        """The fields in which the text makes a page score higher."""
        return [
            Query.boost_query(query, boost)
            for field, boost in BOOSTS.items()
            for query in self._analysed(field, text)
        ]

    def _analysed(self, field: str, text: str) -> list[Query]:
        """The tokens of a text, side by side in a field; one for each analysis that leaves any."""
        names = [(schema.named(field, analysis), analysis) for analysis in self._analyzers]
        queries = []
        for name, analysis in [(field, schema.PLAIN)] if field == schema.ADDRESS else names:
            tokens = self._analyzers[analysis].analyze(text)
            if len(tokens) > 1:
                queries.append(Query.phrase_query(self._schema, name, list(tokens)))
            elif tokens:
                queries.append(Query.term_query(self._schema, name, tokens[0]))
        return queries

    def _host(self, host: str) -> Query:
        return Query.term_query(self._schema, schema.HOSTS, host, "basic")


def _any(queries: Sequence[Query]) -> Query:
    if len(queries) == 1:
        return queries[0]
    return Query.boolean_query([(Occur.Should, query) for query in queries])


def _joined(must: Sequence[Query], should: Sequence[Query], must_not: Sequence[Query]) -> Query:
    return Query.boolean_query(
        [
            *((Occur.Must, query) for query in must),
            *((Occur.Should, query) for query in should),
            *((Occur.MustNot, query) for query in must_not),
        ]
    )
