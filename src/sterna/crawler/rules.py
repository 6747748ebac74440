"""Static checks of a crawler's rules: what they may contain, which fields of a page they read, their outline.

Besides forbidden constructs this refuses what would not survive a move. A crawler is saved as its facts, and
the matches of its rules are computed again where it continues. So a left-hand side may test only facts, and
the page only while there is one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from sterna.crawler.clp import Construct, Form, Token, forms, read_constructs, tokens
from sterna.crawler.facts import is_symbol
from sterna.model import FIELDS, Field, Record, Source, fields_among

TEMPLATES: dict[str, tuple[str, ...]] = {
    "page": (
        "url", "site", "status", "error", "depth", "referrer", "content-type", "size", "title",
        "description", "language", "selected", "keywords", "headings",
    ),
    "link": ("url", "text", "rel", "page"),
    "request": ("url", "depth", "referrer", "priority"),
}  # fmt: skip
MULTISLOTS = frozenset({"keywords", "headings"})

# Functions that decide or remember, functions that read the page (and which fields), and the rest.
ACTIONS = frozenset(
    {
        "follow", "follow-links", "follow-none", "priority", "refuse", "load-page", "keep", "drop", "emit",
        "store", "log-line", "printout",
    }
)  # fmt: skip
PAGE_READERS: dict[str, tuple[Field, ...]] = {
    "page-text": ("text",),
    "page-html": ("html",),
    "page-links": ("links",),
    "page-field": (),  # the field that it names
    "extract": (),  # what the crawler's selectors found
    "text-has": ("text",),
    "text-has-all": ("text",),
    "text-count": ("text",),
    "text-like": ("text",),
    "text-matches": ("text",),
    "link-to": ("links",),
    "links-like": ("links",),
}
MEMORY_READERS = frozenset({"recall"})
PLAIN = frozenset({"like", "matches", "url-site", "url-path", "url-join"})
FUNCTIONS = ACTIONS | PAGE_READERS.keys() | MEMORY_READERS | PLAIN

CONSTRUCTS = ("deftemplate", "deffacts", "defrule", "deffunction", "defglobal")

_PAGE_SLOT_FIELDS: tuple[Field, ...] = ("title", "description", "language", "keywords", "headings")
_GROUPS = frozenset({"and", "or", "not", "exists", "forall"})
_LOADING = ("follow", "load-page")
_OF_A_PAGE = frozenset({"page", "link"})
_REMEMBERING = frozenset({"assert", "duplicate", "modify", "retract", "store"})


def check_rules(sources: tuple[Source, ...]) -> list[Construct]:
    """The constructs of the rules; RulesError names file, line and construct of a forbidden one."""
    constructs = read_constructs(sources)
    _check_names(constructs)
    reach = _Reach(constructs)
    for construct in constructs:
        if construct.kind == "defrule":
            _check_left_side(construct, reach)
        elif construct.kind != "deffunction":
            reach.check_nothing(construct, tokens(construct.form), ACTIONS | PAGE_READERS.keys())
    return constructs


def needs_of(sources: tuple[Source, ...]) -> tuple[Field, ...]:
    """The fields of a page that the rules read."""
    found = (form for construct in read_constructs(sources) for form in forms(construct.form))
    return fields_among(field for form in found for field in _fields_of(form))


def uses(sources: tuple[Source, ...], name: str) -> bool:
    """True if the rules name this function or template; following a URL with a priority uses `priority`."""
    found = [form for construct in read_constructs(sources) for form in forms(construct.form)]
    if name == "priority" and any(form.head in _LOADING and len(form.parts) > 2 for form in found):
        return True
    return any(isinstance(part, Token) and part.text == name for form in found for part in form.parts)


def remember(sources: tuple[Source, ...]) -> bool:
    """False if the rules keep nothing of one page for the next, so that each page is judged by itself."""
    constructs = read_constructs(sources)
    words = {token.text for construct in constructs for token in tokens(construct.form)}
    has_globals = any(construct.kind == "defglobal" for construct in constructs)
    return has_globals or not words.isdisjoint(_REMEMBERING)


def _fields_of(form: Form) -> Iterator[str]:
    if form.head == "page-field":
        named = form.word(1).strip('"')
        yield from (named,) if is_symbol(named) else FIELDS
    for part in form.parts:
        if isinstance(part, Token):
            yield from PAGE_READERS.get(part.text, ())
            if part.text == "link":
                yield "links"
            slot = part.text.rpartition(":")[2]  # `?p:title` is a slot too
            if slot in _PAGE_SLOT_FIELDS:
                yield slot


def _check_names(constructs: list[Construct]) -> None:
    seen: set[tuple[str, str]] = set()
    for construct in constructs:
        if construct.kind not in CONSTRUCTS:
            raise construct.error(f"is not allowed: use one of {', '.join(CONSTRUCTS)}")
        if construct.kind != "defglobal":
            _check_name(construct)
            if (construct.kind, construct.name) in seen:
                raise construct.error("is defined twice")
            seen.add((construct.kind, construct.name))
        for token in tokens(construct.form):
            if "::" in token.text and not token.text.startswith('"'):
                raise construct.error(f"{token.text}: modules are not supported", token.line)


def _check_name(construct: Construct) -> None:
    if not is_symbol(construct.name):
        raise construct.error("needs a symbol for a name")
    if construct.kind == "deftemplate" and construct.name in TEMPLATES:
        raise construct.error("is a built-in template: choose another name")
    if construct.kind == "deffunction" and construct.name in FUNCTIONS:
        raise construct.error("is a built-in function: choose another name")
    if construct.kind == "deffacts":
        for part in construct.form.parts:
            if isinstance(part, Form) and part.head in TEMPLATES:
                raise construct.error(f"only the crawl asserts a {part.head}", part.line)


class _Reach:
    """Which built-in functions and globals a word uses, directly or through the author's own functions."""

    def __init__(self, constructs: Iterable[Construct]) -> None:
        self._words = {
            each.name: {token.text for token in tokens(each.form)}
            for each in constructs
            if each.kind == "deffunction"
        }

    def check_nothing(self, construct: Construct, words: Iterable[Token], banned: Iterable[str]) -> None:
        """Raises RulesError if a word leads to one of `banned`."""
        unwanted = set(banned)
        for token in words:
            if found := self.leads_to(token, unwanted):
                through = "" if found == token.text else f" (through {token.text})"
                raise construct.error(f"{found}{through} belongs on a rule's right-hand side", token.line)

    def leads_to(self, token: Token, wanted: set[str]) -> str:
        """The first of `wanted` that the word is or calls; `?*` means any global; empty if none."""
        waiting, met = [token.text], set[str]()
        while waiting:
            word = waiting.pop()
            if word in wanted or ("?*" in wanted and word.startswith(("?*", "$?*"))):
                return word
            if word in self._words and word not in met:
                met.add(word)
                waiting.extend(sorted(self._words[word]))
        return ""


def matches_alike(rule: Construct) -> bool:
    """True if a rule has two patterns for one template, and so may match the same facts in two ways."""
    heads: list[str] = []
    waiting = list(_left_side(rule)) if rule.kind == "defrule" else []
    while waiting:
        part = waiting.pop()
        if part.head in _GROUPS:
            waiting.extend(inner for inner in part.parts if isinstance(inner, Form))
        elif part.head != "test":
            heads.append(part.head)
    return len(heads) > len(set(heads))


def _check_left_side(rule: Construct, reach: _Reach) -> None:
    is_of_a_page = False
    for part in _left_side(rule):
        if any(form.head == "logical" for form in forms(part)):
            raise rule.error(
                "logical is not allowed: its dependencies are lost when a crawler moves", part.line
            )
        reach.check_nothing(rule, tokens(part), ACTIONS | MEMORY_READERS | {"?*"})
        is_of_a_page = is_of_a_page or part.head in _OF_A_PAGE
        if is_of_a_page and part.head in (*_OF_A_PAGE, "test"):
            continue
        for token in tokens(part):
            if found := reach.leads_to(token, set(PAGE_READERS)):
                where = "move it into a (test ...) after a (page ...)"
                raise rule.error(f"{found} reads the page, but there may be none: {where}", token.line)


def _left_side(rule: Construct) -> Iterator[Form]:
    """The patterns and tests of a rule."""
    for part in rule.form.parts[2:]:
        if isinstance(part, Token):
            if part.text == "=>":
                return
        elif part.head != "declare":
            yield part
    raise rule.error("needs => between its two sides")


# --- outline


class RuleFile(Record, frozen=True, array_like=False):
    """A file of rules and the names that it defines."""

    file: str
    rules: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = ((kind, getattr(self, kind)) for kind in ("rules", "templates", "functions", "facts"))
        words = "; ".join(f"{kind} {', '.join(names)}" for kind, names in named if names)
        return f"{self.file}: {words or 'nothing'}"


def outline(sources: tuple[Source, ...]) -> list[RuleFile]:
    """The outline of each file; RulesError if one is invalid."""
    names: defaultdict[tuple[str, str], tuple[str, ...]] = defaultdict(tuple)
    for each in check_rules(sources):
        names[each.file, each.kind] += (each.name,)
    kinds = ("defrule", "deftemplate", "deffunction", "deffacts")  # in the order of RuleFile's fields
    return [RuleFile(source.name, *(names[source.name, kind] for kind in kinds)) for source in sources]
