"""Sterna: crawlers that migrate."""

from importlib import import_module
from typing import TYPE_CHECKING

from sterna.version import __version__

if TYPE_CHECKING:
    from sterna.api.ask import ask
    from sterna.api.collection import Collection, Collections
    from sterna.api.crawl import crawl
    from sterna.crawler.spec import Budget, Css, Keep, Politeness, Scope, Select, Spec
    from sterna.errors import SternaError

__all__ = [
    "Budget",
    "Collection",
    "Collections",
    "Css",
    "Keep",
    "Politeness",
    "Scope",
    "Select",
    "Spec",
    "SternaError",
    "__version__",
    "ask",
    "crawl",
]

_MODULES = {
    "Collection": "sterna.api.collection",
    "Collections": "sterna.api.collection",
    "SternaError": "sterna.errors",
    "ask": "sterna.api.ask",
    "crawl": "sterna.api.crawl",
}


def __getattr__(name: str) -> object:
    # Importing any module of the package runs this file: it must load nothing else.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "sterna.crawler.spec")), name)
