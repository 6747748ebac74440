"""`sterna search`, `sterna index` and `sterna serve`: the search index of a collection, and its page."""

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sterna.cli.confinement import keep_to
from sterna.cli.exits import Exit
from sterna.cli.flags import FolderArgument, JsonOption, argument, option, switch
from sterna.cli.flags import listen as listen_on
from sterna.cli.lines import duration_text, plural, say, shown, stopped_by_signals, warn
from sterna.errors import UsageError, command
from sterna.home.folder import MARKER, CollectionFolder, names_of
from sterna.query.terminal import harmless
from sterna.web.http_app import is_loopback

if TYPE_CHECKING:
    from sterna.search.results import Found, Piece

DEFAULT_LISTEN = "127.0.0.1:8600"
QUERY = (sys.executable, "-P", "-m", "sterna", "query")  # -P: no module is taken from the working folder
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"

# tantivy and Arrow are slow to load, and --help should not wait for them: the commands load them.


def search(
    what: Annotated[
        list[str],
        argument(
            "DIR... WORDS...",
            'A collection, or several; words, "a phrase", title:word, url:word, site:host; -word excludes'
            " pages with it.",
        ),
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Hits to show.")] = 10,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Hits to skip.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Search the pages of a collection, or of several as one, also while they are crawled.

    The first words are collections as long as they are folders of such. Put quotes of the shell around a
    phrase or a minus.

    Example: sterna search crawls/www.example.org '"full text" -draft site:docs.example.org'
    """
    folders, words = _split(what)
    keep_to(*folders, makes_index=True)
    from sterna.api.search import search as find  # noqa: PLC0415

    collections = [CollectionFolder(folder).check() for folder in folders]
    names_of(collections)
    for collection in collections:
        _make_index(collection)
    first, *others = collections
    found = find(first, " ".join(words), *others, limit=limit, offset=offset)
    if as_json:
        # ASCII only, so that no text of a page can harm the terminal.
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
    else:
        is_bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        sys.stdout.write("".join(f"{line}\n" for line in _lines(found, is_bold=is_bold)))
    if not found.hits:
        raise typer.Exit(int(Exit.NOTHING))


def _split(what: Sequence[str]) -> tuple[list[Path], Sequence[str]]:
    """The collections, the first of which need not be one, and the words after them."""
    count = 1
    while count < len(what) and os.path.isfile(Path(what[count]) / MARKER):  # noqa: PTH113 - a long word is no path
        count += 1
    if count == len(what) == 1 and not CollectionFolder(Path(what[0])).is_collection():
        usage = command("search", "DIR", what[0])
        raise UsageError(f"{what[0]} is not a collection: name one before the words: {usage}")
    if count == len(what):
        raise UsageError(f"give words to search for, such as: sterna search {' '.join(what)} tern")
    return [Path(folder) for folder in what[:count]], what[count:]


def index(
    folder: FolderArgument,
    anew: Annotated[
        bool, switch("Create it from the archive; the old one serves until then.", "--anew")
    ] = False,
) -> None:
    """Bring the search index up to date; a crawl does so by itself.

    Example: sterna index crawls/www.example.org --anew
    """
    keep_to(folder, makes_index=True)
    from sterna.api.search import bring_up  # noqa: PLC0415
    from sterna.search.searcher import Searcher  # noqa: PLC0415

    collection = CollectionFolder(folder).check()
    began = time.monotonic()
    with stopped_by_signals() as stop:
        is_whole, rows = bring_up(collection, is_anew=anew, stop=stop, show=_showing)
    if not is_whole:
        again = "the index is unchanged" if anew else f"continue with: {command('index', folder)}"
        warn(f"stopped; {again}")
        raise typer.Exit(int(Exit.STOPPED))
    seconds = duration_text(time.monotonic() - began)
    with Searcher(collection.index_folder) as searcher:
        pages = plural(searcher.page_count(), "page")
    find = command("search", folder, "WORDS")
    say(f"{plural(rows, 'version')} of pages read in {seconds}; {pages} can be searched: {find}")


def serve(
    folders: Annotated[list[Path], argument("DIR...", "The collection, or several to be searched as one.")],
    listen: Annotated[
        str, option("ADDR", "HOST:PORT; only on this machine unless you say so.")
    ] = DEFAULT_LISTEN,
    name: Annotated[
        str, option("NAME", "What the page calls the collection. (default: the folders' names)")
    ] = "",
    sql: Annotated[bool, switch("Offer a page for queries in SQL, too.", "--sql/--no-sql")] = True,
) -> None:
    """Show a search page for a collection, with a page for SQL and a JSON API beside it. Ctrl-C ends it.

    What a crawl brings while the page is shown is found a moment later.
    Example: sterna serve crawls/www.example.org
    """
    collections = [CollectionFolder(folder).check() for folder in folders]
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    title = name or ", ".join(names_of(collections))
    with listen_on("--listen", listen, example=f"{DEFAULT_LISTEN} or [::1]:8600") as listener:
        keep_to(*folders, makes_index=True)
        import uvloop  # noqa: PLC0415

        from sterna.api.search import open_searcher  # noqa: PLC0415
        from sterna.search.page.service import make_app, page_server  # noqa: PLC0415
        from sterna.search.page.sql import Queries  # noqa: PLC0415
        from sterna.web.http_server import serve_until_signalled  # noqa: PLC0415

        if not all(map(_make_index, collections)):
            raise typer.Exit(int(Exit.STOPPED))
        host, port = listener.getsockname()[:2]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        is_local = is_loopback(host)
        with open_searcher(*collections) as searcher:
            count = searcher.page_count()

            def say_ready() -> None:
                typer.echo(f"{title}: {plural(count, 'page')} at http://{place}/ until Ctrl-C")
                if not is_local:
                    warn(f"warning: other machines may reach {place}: anyone there can read the collection")

            # The scratch folder is the only place in which this process and its children may write.
            environ = {**os.environ, "TMPDIR": tempfile.gettempdir()}
            queries = Queries(QUERY, [str(each) for each in folders], environ) if sql else None
            server = page_server(make_app(searcher, name=title, is_local=is_local, queries=queries))
            uvloop.run(serve_until_signalled(server, listener, on_ready=say_ready))
        typer.echo("stopped")


# -- the index ---------------------------------------------------------------------------------------------


def _make_index(collection: CollectionFolder) -> bool:
    """Creates the index if there is none; False if Ctrl-C stopped it."""
    from sterna.api.search import bring_up, has_index  # noqa: PLC0415

    if has_index(collection):
        return True
    warn(f"{collection.folder} has no search index yet: creating it")
    with stopped_by_signals() as stop:
        is_whole, _ = bring_up(collection, stop=stop, show=_showing)
    return is_whole


def _showing(done: Callable[[], int], total: int) -> AbstractContextManager[None]:
    return shown(
        lambda: {"indexing": (done(), total)}, line=lambda: f"indexing: {done():,} of {total:,} pages\n"
    )


# -- hits --------------------------------------------------------------------------------------------------


def _lines(found: "Found", *, is_bold: bool) -> Iterator[str]:
    if found.note:
        yield harmless(f"({found.note})")
    for number, hit in enumerate(found.hits, found.offset + 1):
        yield f"{number:>3}. {_shown(hit.title_pieces, is_bold=is_bold) or harmless(hit.url)}"
        yield f"     {harmless(hit.url)}" + (f"  [{harmless(hit.collection)}]" if hit.collection else "")
        if hit.snippet:
            yield f"     {_shown(hit.snippet, is_bold=is_bold)}"
        if hit.folded:
            yield f"     and {plural(len(hit.folded), 'page')} much like it"
        yield ""
    if not found.hits:
        yield "no page found" if not found.offset else "no more pages"
        return
    last = found.offset + len(found.hits)
    about = "" if found.is_exact else "about "
    more = f"; more: --offset {last}" if last < found.total else ""
    part = f"{found.offset + 1}-{last} of {about}{plural(found.total, 'page')}"
    yield f"{part}, {1000 * found.seconds:.0f} ms{more}"


def _shown(pieces: "Sequence[Piece]", *, is_bold: bool) -> str:
    return "".join(
        f"{_BOLD}{harmless(piece.text)}{_PLAIN}" if is_bold and piece.is_marked else harmless(piece.text)
        for piece in pieces
    )
