"""Crawlers as the command line is given them: a spec, a packed file, a query."""

from pathlib import Path
from typing import Any

import msgspec

from sterna.crawler.compiler import budget_of, compile_spec, gather_of
from sterna.crawler.pack import SUFFIX, PackedCrawler, read
from sterna.crawler.spec import Spec, load_spec
from sterna.home.errand import errand_of
from sterna.home.options import Options


def is_file(text: str) -> bool:
    """True if an argument names a crawler's file and no URL."""
    return text.endswith((".toml", SUFFIX)) and "://" not in text


def read_crawler(path: Path) -> PackedCrawler:
    """The crawler of a spec or a packed file."""
    return read(path) if path.suffix == SUFFIX else packed_of(load_spec(path), path.parent)


def packed_of(spec: Spec, folder: Path) -> PackedCrawler:
    """A spec with everything that home needs to send it out; its rules lie in `folder`."""
    return PackedCrawler(
        crawler=compile_spec(spec, folder),
        options=spec.options(),
        budget=budget_of(spec),
        journey=spec.journey_sites(),
        gather=gather_of(spec, folder),
    )


def lay_over(options: Options, packed: PackedCrawler | None, flags: dict[str, Any]) -> Options:
    """The options with the crawler's over them, and the flags over both."""
    given = {name: value for name, value in flags.items() if value is not None}
    ours = dict(packed.options) if packed else {}
    ours.pop("seeds", None)  # they are merged with those of the collection
    return msgspec.structs.replace(options, **{**ours, **given})


def errand(packed: PackedCrawler | None, options: Options, *, is_keep_given: bool) -> PackedCrawler | None:
    """What the run is sent out with; None lets the collection go on with its own crawler."""
    if packed or not is_keep_given:
        return packed
    return errand_of(options)
