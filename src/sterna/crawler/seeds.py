"""Addresses as people write them: where a crawler starts, and the paths below which it stays."""

import re

from sterna.web.urls import Canonical, path_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")


def seed_url(text: str, canonical: Canonical) -> str | None:
    """The canonical URL of a start address, which may go without its scheme; None if it is none."""
    has_scheme = _SCHEME.match(text) is not None
    # A bare word is a slip more often than a hostname; with its scheme it is taken at its word.
    if not (has_scheme or "." in text or ":" in text or text.startswith("localhost")):
        return None
    return canonical(text if has_scheme else f"https://{text}")


def subtree_path(text: str) -> str | None:
    """The path as canonical URLs spell it; None if it is none."""
    if not text.startswith("/") or text.startswith("//") or "?" in text or "#" in text:
        return None
    url = Canonical(())(f"https://example.org{text}")
    return path_of(url) if url else None
