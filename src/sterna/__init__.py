"""Sterna: crawlers that migrate."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sterna.errors import missing_extra
from sterna.version import __version__

if TYPE_CHECKING:
    from sterna.api.ask import ask
    from sterna.api.collection import Collection, Collections
    from sterna.api.crawl import acrawl, crawl, pages
    from sterna.crawler.spec import Budget, Css, Keep, Politeness, Scope, Select, Spec
    from sterna.errors import SternaError
    from sterna.home.progress import Summary
    from sterna.model import Page

__all__ = [
    "Budget",
    "Collection",
    "Collections",
    "Css",
    "Keep",
    "Page",
    "Politeness",
    "Scope",
    "Select",
    "Spec",
    "SternaError",
    "Summary",
    "__version__",
    "acrawl",
    "ask",
    "crawl",
    "pages",
]

_MODULES = {
    "Collection": "sterna.api.collection",
    "Collections": "sterna.api.collection",
    "Page": "sterna.model",
    "SternaError": "sterna.errors",
    "Summary": "sterna.home.progress",
    "acrawl": "sterna.api.crawl",
    "ask": "sterna.api.ask",
    "crawl": "sterna.api.crawl",
    "pages": "sterna.api.crawl",
}


def __getattr__(name: str) -> object:
    # Importing any module of the package runs this file: it must load nothing else.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "sterna.crawler.spec")
    if module.startswith("sterna.api") and find_spec("pyarrow") is None:
        missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        raise ModuleNotFoundError(f"sterna.{name} {missing_extra(missing)}", name="pyarrow") from None
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "errors"]
