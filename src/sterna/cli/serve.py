"""`sterna serve`: a search page for a collection."""

import logging
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.exits import Exit
from sterna.errors import UsageError
from sterna.home.folder import Collection

DEFAULT_LISTEN = "127.0.0.1:8600"


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="ADDR", help="HOST:PORT; on this machine alone unless you say so."),
    ] = DEFAULT_LISTEN,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What the page calls the collection. (its folder's)")
    ] = "",
) -> None:
    """Show a search page for a collection, with a JSON API beside it. Ctrl-C ends it.

    What a crawl brings while the page is shown is found a moment later.
    Example: sterna serve crawls/www.example.org
    """
    collection = Collection(folder)
    collection.check()
    shown = name or folder.resolve().name
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    with _listener(listen) as listener:
        _run(collection, shown, listener)


def _run(collection: Collection, name: str, listener: socket.socket) -> None:
    # The index and the server take a while to load, and who asks for help should not wait for them.
    import uvloop  # noqa: PLC0415

    from sterna.cli.index import bring_up  # noqa: PLC0415
    from sterna.search.generations import current  # noqa: PLC0415
    from sterna.search.page.service import make_app  # noqa: PLC0415
    from sterna.search.page.service import serve as run_server  # noqa: PLC0415
    from sterna.search.searcher import Searcher  # noqa: PLC0415
    from sterna.web.http_app import is_loopback  # noqa: PLC0415

    if current(collection.index_folder) is None:
        sys.stderr.write(f"sterna: {collection.folder} has no search index yet, it is made now\n")
        is_whole, _ = bring_up(collection)
        if not is_whole:
            raise typer.Exit(int(Exit.STOPPED))
    host, port = listener.getsockname()[:2]
    is_local = is_loopback(host)
    with Searcher(collection.index_folder) as searcher:
        count = searcher.page_count()

        def say_ready() -> None:
            typer.echo(f"{name}: {count:,} pages at http://{_written(host)}:{port}/ until Ctrl-C")
            if not is_local:
                _warn(
                    f"{_written(host)}:{port} is no address of this machine alone: whoever reaches it can"
                    " read the collection"
                )

        uvloop.run(
            run_server(
                lambda: make_app(searcher, name=name, is_local=is_local),
                listener=listener,
                on_ready=say_ready,
            )
        )
    typer.echo("stopped")


def _listener(written: str) -> socket.socket:
    """A socket that listens there; UsageError if it cannot."""
    host, _, port = written.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise UsageError(f"--listen {written} cannot be: write it as {DEFAULT_LISTEN} or [::1]:8600")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]") or "127.0.0.1", int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--listen {written} cannot be: {error}") from error


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _warn(line: str) -> None:
    sys.stderr.write(f"sterna: warning: {line}\n")
