"""`sterna search`: finds pages of a collection by their words."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.cli.index import bring_up
from sterna.cli.numbers import plural
from sterna.home.folder import Collection
from sterna.query.terminal import harmless

if TYPE_CHECKING:
    from sterna.search.results import Found, Hit, Piece

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def search(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS...",
            help='Words, "a phrase", title:word, url:word, site:host; -word: not that one.',
        ),
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="So many hits.")] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="After so many.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Search the pages of a collection, also while it is crawled.

    Quotes and a minus need quotes of the shell's around them.

    Example: sterna search crawls/www.example.org '"full text" -draft site:docs.example.org'
    """
    collection = Collection(folder)
    collection.check()
    # tantivy takes a while to load, and who asks for help should not wait for it.
    from sterna.search.generations import current  # noqa: PLC0415
    from sterna.search.searcher import Searcher  # noqa: PLC0415

    if current(collection.index_folder) is None:
        sys.stderr.write(f"sterna: {folder} has no search index yet, it is made now\n")
        bring_up(collection)
    with Searcher(collection.index_folder) as searcher:
        found = searcher.search(" ".join(words), limit=limit, offset=offset)
    if as_json:
        # Nothing but ASCII: whatever a page holds is harmless to the terminal that shows it.
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(found, is_bold=_may_be_bold())))
    if not found.hits:
        raise typer.Exit(int(Exit.NOTHING))


def _may_be_bold() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _lines(found: "Found", *, is_bold: bool) -> Iterator[str]:
    if found.note:
        yield harmless(f"({found.note})")
    for number, hit in enumerate(found.hits, found.offset + 1):
        yield from _hit_lines(number, hit, is_bold=is_bold)
    if not found.hits:
        yield "no page found" if not found.offset else "no more pages"
        return
    last = found.offset + len(found.hits)
    about = "" if found.is_exact else "about "
    more = f"; more: --offset {last}" if last < found.total else ""
    part = f"{found.offset + 1}-{last} of {about}{plural(found.total, 'page')}"
    yield f"{part}, {1000 * found.seconds:.0f} ms{more}"


def _hit_lines(number: int, hit: "Hit", *, is_bold: bool) -> Iterator[str]:
    yield f"{number:>3}. {_shown(hit.title_pieces, is_bold=is_bold) or harmless(hit.url)}"
    yield f"     {harmless(hit.url)}"
    if hit.snippet:
        yield f"     {_shown(hit.snippet, is_bold=is_bold)}"
    if hit.folded:
        yield f"     and {plural(len(hit.folded), 'page')} much like it"
    yield ""


def _shown(pieces: "Sequence[Piece]", *, is_bold: bool) -> str:
    return "".join(
        f"{_BOLD}{harmless(piece.text)}{_PLAIN}" if is_bold and piece.is_marked else harmless(piece.text)
        for piece in pieces
    )
