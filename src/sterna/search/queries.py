"""What was asked for as a query of tantivy: which pages match, and how well.

Every word must be somewhere on the page. Where it stands in the title, a heading, a keyword or the URL, the
page scores higher; higher still where the words stand in the title one after the other. A word is looked for
as each analysis that occurs in the index would have written it.
"""

from collections.abc import Mapping, Sequence

from tantivy import Occur, Query, Schema, TextAnalyzer

from sterna.model import Record
from sterna.search import schema
from sterna.search.analysis import PLAIN
from sterna.search.wording import Asked, Term

TITLE_BOOST = 3.0
HEADS_BOOST = 1.5
ADDRESS_BOOST = 1.0
TITLE_PHRASE_BOOST = 3.0


class Composed(Record, frozen=True, kw_only=True, gc=True):
    """A query; `wanted` is what of it is to be marked, `lost` what of the words holds nothing to look for."""

    every: Query | None  # all words; None: there is nothing to look for
    some: Query | None  # any of the words, where there are several
    wanted: Query | None
    lost: tuple[str, ...]


class Composer:
    """Makes queries for an index in which these analyses occur."""

    def __init__(self, fields: Schema, analyzers: Mapping[str, TextAnalyzer]) -> None:
        self._schema = fields
        self._analyzers = analyzers

    def compose(self, asked: Asked) -> Composed:
        must: list[Query] = []
        should: list[Query] = []
        must_not: list[Query] = []
        lost: list[str] = []
        for term in asked.terms:
            found = self._anywhere(term)
            if found is None:
                lost.append(term.text)
            elif term.is_excluded:
                must_not.append(found)
            else:
                must.append(found)
                should += self._better(term)
        wanted = [term for term in asked.terms if not term.is_excluded and not term.where]
        if len(wanted) > 1:
            should += self._title_phrases(" ".join(term.text for term in wanted))
        filters = self._site_filters(asked)
        if not must and not asked.sites:
            return Composed(every=None, some=None, wanted=None, lost=tuple(lost))
        must_not += [_const(self._host(host), 0.0) for host in asked.excluded_sites]
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

    def _anywhere(self, term: Term) -> Query | None:
        """Pages that have the term where it must be; None if no analysis leaves anything of it."""
        if term.where == "url":
            return self._written(schema.ADDRESS, PLAIN, term.text)
        field = schema.TITLE if term.where == "title" else schema.ALL
        queries = self._analysed(field, term.text)
        return _any(queries) if queries else None

    def _better(self, term: Term) -> list[Query]:
        if term.where:
            return []
        titles = self._analysed(schema.TITLE, term.text)
        heads = self._analysed(schema.HEADS, term.text)
        address = self._written(schema.ADDRESS, PLAIN, term.text)
        return [
            *(Query.boost_query(query, TITLE_BOOST) for query in titles),
            *(Query.boost_query(query, HEADS_BOOST) for query in heads),
            *([Query.boost_query(address, ADDRESS_BOOST)] if address is not None else []),
        ]

    def _title_phrases(self, text: str) -> list[Query]:
        return [Query.boost_query(query, TITLE_PHRASE_BOOST) for query in self._analysed(schema.TITLE, text)]

    def _analysed(self, field: str, text: str) -> list[Query]:
        written = (self._written(schema.named(field, name), name, text) for name in self._analyzers)
        return [query for query in written if query is not None]

    def _written(self, field: str, analysis: str, text: str) -> Query | None:
        """The tokens of a text one after the other in a field."""
        tokens = self._analyzers[analysis].analyze(text)
        if not tokens:
            return None
        if len(tokens) == 1:
            return Query.term_query(self._schema, field, tokens[0])
        return Query.phrase_query(self._schema, field, list(tokens))

    def _site_filters(self, asked: Asked) -> list[Query]:
        return [_const(_any([self._host(host) for host in asked.sites]), 0.0)] if asked.sites else []

    def _host(self, host: str) -> Query:
        return Query.term_query(self._schema, schema.HOSTS, host, "basic")


def _const(query: Query, score: float) -> Query:
    return Query.const_score_query(query, score)


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
