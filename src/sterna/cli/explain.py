"""`sterna explain`, `sterna pack`, `sterna inspect`: crawlers in words, and as files."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from sterna.api.crawlers import is_file, kept_crawler, packed_of, read_crawler, saved_crawler, signed
from sterna.cli.flags import argument, option, switch
from sterna.cli.keys import KeysOption, keyring_of
from sterna.crawler.explanation import explain as explain_crawler
from sterna.crawler.pack import SUFFIX, describe, encode, to_json
from sterna.crawler.rules import MULTISLOTS, TEMPLATES
from sterna.crawler.spec import load_spec
from sterna.errors import UsageError
from sterna.export.workbench import whole_file
from sterna.home.folder import CollectionFolder
from sterna.query.terminal import harmless
from sterna.wire.keys import DEFAULT_KEYS


def explain(
    what: Annotated[
        str,
        argument("FILE|DIR|SQL", "A spec, a packed crawler, a collection, or a query as for `sterna ask`."),
    ],
    as_rule: Annotated[
        bool, switch("Print a simple query as a rule, to be added to a crawler's own rules.", "--rule")
    ] = False,
) -> None:
    """Say in words what a crawler will do, and where each part of it is decided.

    For a collection it also says what is asked of the hosts of its sites, what is offered in return, and
    which parts of a site one visit would cover.

    Example: sterna explain health.toml
    """
    if not as_rule:
        sys.stdout.write(explanation(what) + "\n")
        return
    if is_file(what):
        raise UsageError(f"--rule needs a query, and {what} is a crawler's file")
    # The SQL parser is slow to load.
    from sterna.crawler.sql.rule import query_rule  # noqa: PLC0415

    slots = [slot for slot in TEMPLATES["page"] if slot not in MULTISLOTS]
    sys.stdout.write(query_rule(what, {"page": slots}) + "\n")


def explanation(what: str) -> str:
    """What the argument of `sterna explain` will do, in words."""
    if what.endswith(SUFFIX):
        return explain_crawler(read_crawler(Path(what)).crawler)
    if is_file(what):
        return explain_crawler(load_spec(Path(what)), Path(what).parent)
    is_folder = False
    with suppress(OSError):  # a query that is too long for a file name
        is_folder = Path(what).is_dir()
    if is_folder:
        return _collection_explained(CollectionFolder(Path(what)))
    # The SQL parser is slow to load.
    from sterna.crawler.sql.plan import explain_query  # noqa: PLC0415

    return explain_query(what)


def _collection_explained(folder: CollectionFolder) -> str:
    """The collection's crawler, and what is asked of hosts for it."""
    from sterna.home.away.bargains import bargains  # noqa: PLC0415 - slow to load

    folder.check()
    errand, options = kept_crawler(folder)
    with folder.open_ledger() as ledger:
        offered = options.priorities_by_site()
        found = bargains(ledger, errand.crawler, own=errand.budget, offered=offered)
    words = ["\n  ".join(map(harmless, lines)) for lines in found]
    asked = "\n".join(words or ["no host is known at its sites: nothing is asked of any"])
    return f"{explain_crawler(errand.crawler)}\n\nAt the hosts of its sites\n\n{asked}"


def pack(
    what: Annotated[Path, argument("FILE|DIR", "The spec, or a collection.")],
    into: Annotated[Path | None, option("FILE", "(default: NAME.crawler)", "--into", "-o")] = None,
    site: Annotated[str, option("URL", "Of a collection with several sites, the one to continue with.")] = "",
    sign: Annotated[bool, switch("Sign name and program with your home's key.", "--sign")] = False,
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Write a crawler as one file: program and facts, the same bytes each time.

    Of a collection it is the crawler with its progress, which continues wherever it is sent out next. Owners
    of hosts can permit all crawlers that you signed, or this program: `sterna inspect` shows its digest.
    """
    if what.is_dir():
        packed = saved_crawler(CollectionFolder(what), site)
    else:
        packed = packed_of(load_spec(what), what.parent)
    if sign:
        packed = signed(packed, keyring_of(keys).read("home"))
    path = into or Path(f"{packed.crawler.name}{SUFFIX}")
    if path.suffix != SUFFIX:
        raise UsageError(f"--into {path} is invalid: the name of a crawler's file ends in {SUFFIX}")
    content = encode(packed)
    with whole_file(path, stdout=sys.stdout.buffer) as file:
        file.write(content)
    sys.stdout.write(f"{path}: {len(content):,} bytes\n")


def inspect(
    file: Annotated[Path, argument("FILE", "A packed crawler.")],
    as_json: Annotated[bool, switch("As JSON.", "--json")] = False,
) -> None:
    """Show what a crawler's file contains, without running any of it."""
    packed = read_crawler(file)
    sys.stdout.write((to_json(packed) if as_json else describe(packed)) + "\n")
