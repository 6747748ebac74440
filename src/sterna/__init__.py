"""Sterna: crawlers that migrate."""

from typing import TYPE_CHECKING

from sterna.version import __version__

if TYPE_CHECKING:
    from sterna.api.collection import Collection
    from sterna.api.crawl import crawl
    from sterna.crawler.spec import Budget, Css, Keep, Politeness, Scope, Select, Spec

__all__ = [
    "Budget",
    "Collection",
    "Css",
    "Keep",
    "Politeness",
    "Scope",
    "Select",
    "Spec",
    "__version__",
    "crawl",
]


def __getattr__(name: str) -> object:
    # Every module of the package passes here, and few of them need a spec.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "crawl":
        from sterna.api.crawl import crawl  # noqa: PLC0415

        return crawl
    if name == "Collection":
        from sterna.api.collection import Collection  # noqa: PLC0415

        return Collection
    from sterna.crawler import spec  # noqa: PLC0415

    return getattr(spec, name)
