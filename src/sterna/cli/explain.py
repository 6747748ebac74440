"""`sterna explain`, `sterna pack`, `sterna inspect`: crawlers in words, and as files."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.api.crawlers import is_file, packed_of, read_crawler
from sterna.crawler.explanation import explain as explain_crawler
from sterna.crawler.pack import SUFFIX, PackedCrawler, describe, summary_of, write
from sterna.crawler.rules import MULTISLOTS, TEMPLATES
from sterna.crawler.spec import load_spec
from sterna.errors import UsageError
from sterna.query.terminal import harmless


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR|SQL",
            help="A spec, a packed crawler, a collection, or a query as for `sterna ask`.",
        ),
    ],
    as_rule: Annotated[
        bool,
        typer.Option("--rule", help="Print a simple query as a rule, to be put among a crawler's own rules."),
    ] = False,
) -> None:
    """Say in words what a crawler will do, and where each part of it is decided.

    Of a collection it also says what is asked of the hosts of its sites, what is offered for that, and which
    parts of a site one visit would take.

    Example: sterna explain health.toml
    """
    sys.stdout.write((_rule(what) if as_rule else _explained(what)) + "\n")


def _rule(what: str) -> str:
    if is_file(what):
        raise UsageError(f"--rule needs a query, and {what} is a crawler's file")
    # The reader of SQL takes a while to load.
    from sterna.crawler.sql.rule import query_rule  # noqa: PLC0415

    return query_rule(what, {"page": [slot for slot in TEMPLATES["page"] if slot not in MULTISLOTS]})


def _explained(what: str) -> str:
    if what.endswith(SUFFIX):
        return explain_crawler(read_crawler(Path(what)).crawler)
    if is_file(what):
        return explain_crawler(load_spec(Path(what)), Path(what).parent)
    if _is_folder(what):
        return _collection_explained(Path(what))
    # The reader of SQL takes a while to load.
    from sterna.crawler.sql.plan import explain_query  # noqa: PLC0415

    return explain_query(what)


def _collection_explained(folder: Path) -> str:
    """The collection's crawler, and what is asked of hosts for it."""
    # The ledger takes a while to load.
    from sterna.home.away.bargains import bargain_words, bargains  # noqa: PLC0415
    from sterna.home.errand import choose_errand, load  # noqa: PLC0415
    from sterna.home.folder import Collection  # noqa: PLC0415
    from sterna.home.ledger.sqlite.ledger import SqliteLedger  # noqa: PLC0415
    from sterna.home.options import load as load_options  # noqa: PLC0415

    collection = Collection(folder)
    collection.check()
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        options = load_options(ledger.setting("options"))
        errand = choose_errand(None, load(ledger.setting("errand")), options)
        found = bargains(ledger, own=errand.budget, offered=options.priorities_by_site())
    finally:
        ledger.close()
    words = ["\n  ".join(map(harmless, bargain_words(each, errand.crawler))) for each in found]
    asked = "\n".join(words or ["no host is known at its sites: nothing is asked of any"])
    return f"{explain_crawler(errand.crawler)}\n\nAt the hosts of its sites\n\n{asked}"


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except OSError:
        return False  # a query that is too long for a name


def pack(
    what: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="The spec, or a collection.")],
    into: Annotated[
        Path | None, typer.Option("--into", "-o", metavar="FILE", help="(default: NAME.crawler)")
    ] = None,
    site: Annotated[
        str, typer.Option(metavar="URL", help="Of a collection with several sites, the one to go on with.")
    ] = "",
) -> None:
    """Write a crawler as one file: program and facts, the same bytes each time.

    Of a collection it is the crawler with its progress, which goes on where it is sent out next.
    """
    packed = _from_collection(what, site) if what.is_dir() else packed_of(load_spec(what), what.parent)
    path = into or Path(f"{packed.crawler.name}{SUFFIX}")
    if path.suffix != SUFFIX:
        raise UsageError(f"--into {path} cannot be: a crawler's file ends in {SUFFIX}")
    write(path, packed)
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


def _from_collection(folder: Path, site: str) -> PackedCrawler:
    """The collection's crawler as it stands at one of its sites."""
    # The ledger takes a while to load.
    from sterna.home.saved import saved_crawler  # noqa: PLC0415

    return saved_crawler(folder, site)


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A packed crawler.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show what is in a crawler's file without running any of it."""
    packed = read_crawler(file)
    shown = msgspec.json.encode(summary_of(packed)).decode() if as_json else describe(packed)
    sys.stdout.write(shown + "\n")
