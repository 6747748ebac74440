"""What a changed errand means for what is stored: which links are followed, and which pages judged, anew."""

import msgspec
from msgspec.structs import asdict

from sterna.crawler.grammar import columns_of
from sterna.model import Keep, Predicate, Program, Record, Scope, Stay

_BORDERS: dict[Stay, int] = {"site": 0, "domain": 1, "any": 2}
# Columns of the archive's pages that every crawler brings.
_ALWAYS = frozenset({"url", "site", "depth", "referrer", "status", "content_type", "size", "etag"})


class Errand(Record, frozen=True):
    """What decides which pages of a crawl are fetched and kept; `crawler` is the name."""

    crawler: str
    scope: Scope
    program: Program


class Changes(Record, frozen=True, kw_only=True):
    """What changed since the pages of a collection were fetched, and what follows."""

    names: tuple[str, ...] = ()  # of what changed, for people
    narrowed: tuple[str, ...] = ()  # of the scope: what is stored stays
    follows_links: bool = False  # those that the archive has, and that were left out
    goes_deeper: bool = False  # to URLs that the ledger has already
    reads_sitemaps: bool = False
    judges_pages: bool = False  # stored ones, by the archive
    fetches_unkept: bool = False  # pages that were seen and not kept
    fetches_all: bool = False

    @property
    def has_work(self) -> bool:
        return any(value for name, value in asdict(self).items() if name not in ("names", "narrowed"))

    def plus(self, other: "Changes") -> "Changes":
        merged = {name: getattr(self, name) or value for name, value in asdict(other).items()}
        told = {name: (*getattr(self, name), *getattr(other, name)) for name in ("names", "narrowed")}
        return Changes(**merged | {name: tuple(dict.fromkeys(each)) for name, each in told.items()})


def changes_between(before: Errand, now: Errand) -> Changes:
    """What follows if a collection that was crawled for `before` is crawled for `now`."""
    names = _widened(before, now)
    narrowed = (name for name in _widened(now, before) if name.startswith("--") and name not in names)
    found = Changes(names=tuple(names), narrowed=tuple(narrowed), goes_deeper="--max-depth" in names)
    if found.goes_deeper:
        names.remove("--max-depth")
    if names:
        # Rules decide which links are followed, so only they know which of the archive's would have been.
        has_links = "links" in before.program.keep.fields and not (before.program.rules or now.program.rules)
        has_links = has_links and "drop_params" not in names
        found = msgspec.structs.replace(
            found,
            follows_links=has_links,
            reads_sitemaps=True,
            fetches_all=not has_links,
            fetches_unkept=_is_selective(before.program),
        )
    if before.crawler == now.crawler:  # another crawler leaves the pages of the first one alone
        found = found.plus(_of_pages(before.program, now.program))
    return found


def _widened(before: Errand, now: Errand) -> list[str]:
    """What of the scope may admit URLs that were left out."""
    old, new = before.scope, now.scope
    widened = {
        "--stay": _BORDERS[new.stay] > _BORDERS[old.stay],
        "--include": _admits_more(old.include, new.include),
        "--exclude": not set(old.exclude) <= set(new.exclude),
        "--subtree": _admits_more(old.subtrees, new.subtrees),
        "--sitemaps": new.use_sitemaps and not old.use_sitemaps,
        "drop_params": not set(old.drop_params) <= set(new.drop_params),
        "select": before.program.prune not in (None, now.program.prune),
        "--max-depth": new.max_depth > old.max_depth,
    }
    return [name for name, is_wider in widened.items() if is_wider]


def _admits_more(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Of expressions one of which must match; without any, all is admitted."""
    return bool(old) and (not new or not set(new) <= set(old))


def _of_pages(old: Program, new: Program) -> Changes:
    """What follows for the pages."""
    is_other = {
        "select": old.select != new.select,
        "rules": old.rules != new.rules,
        "keep": _asks_more(old.keep, new.keep),
    }
    names = tuple(name for name, is_changed in is_other.items() if is_changed)
    if is_other["rules"] or is_other["keep"]:
        return Changes(names=names, fetches_all=True)
    if not is_other["select"]:
        return Changes()
    if new.rules or not (new.select is None or may_judge(new.select, old.keep)):
        return Changes(names=names, fetches_all=True)
    return Changes(names=names, judges_pages=new.select is not None, fetches_unkept=_is_selective(old))


def may_judge(select: Predicate, kept: Keep) -> bool:
    """True if the archive has all that the condition is about."""
    cut = {"text", "html"} if kept.share < 1.0 else set[str]()
    return columns_of(select) <= (_ALWAYS | {*kept.fields}) - cut


def _is_selective(program: Program) -> bool:
    return program.select is not None or bool(program.rules)


def _asks_more(old: Keep, new: Keep) -> bool:
    return (
        not set(new.fields) <= set(old.fields)
        or not set(new.selectors) <= set(old.selectors)
        or new.share > old.share
    )
