"""Which media a selection asks for: their links are then followed like those to pages."""

from collections.abc import Iterator

from sterna.model import Predicate

_RELS = {
    "image/": ("icon", "img", "srcset"),
    "audio/": ("media",),
    "video/": ("media",),
    "font/": ("font",),
    "text/css": ("stylesheet",),
    "text/javascript": ("script",),
    "application/javascript": ("script",),
}
_NAMING = frozenset({"=", "in", "like", "ilike", "starts_with", "type_in"})  # the operators that name types


def media_rels(select: Predicate | None) -> frozenset[str]:
    """Returns the rels of links to media of the types that a selection names; none if it names no type."""
    types = tuple(_types(select)) if select else ()
    return frozenset(
        rel
        for begin, rels in _RELS.items()
        if any(kind.startswith(begin) or begin.startswith(kind) for kind in types)
        for rel in rels
    )


def _types(part: Predicate) -> Iterator[str]:
    """Yields the types, in lower case and without wildcards, that pages may have by their selection."""
    if part.op in ("and", "or"):
        for each in part.parts:
            yield from _types(each)
    elif part.op in _NAMING and part.column in ("content_type", "lower(content_type)"):
        for value in part.values:
            if isinstance(value, str) and (kind := value.lower().rstrip("*%")):
                yield kind
