"""`sterna demo`: serves a small site that ships with the package, and crawls it."""

import asyncio
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.crawl import crawl_and_exit
from sterna.cli.display import choose_display
from sterna.cli.flags import switch
from sterna.home.folder import CollectionFolder

PORT = 8737  # the same each time, so that a second run knows its pages


def demo(
    into: Annotated[Path, typer.Option(help="The collection's folder.")] = Path("crawls/demo"),
    serve: Annotated[bool, switch("Only serve the site, until Ctrl-C.", "--serve")] = False,
    as_json: Annotated[bool, switch("Progress and summary as JSON lines.", "--json")] = False,
) -> None:
    """Crawl a small site that ships with Sterna; needs no network."""
    # They are slow to load, and --help should not wait for them.
    from sterna.api.crawl import gather_options  # noqa: PLC0415
    from sterna.home.crawl import Run  # noqa: PLC0415

    collection = CollectionFolder(into)
    with as_file(files("sterna.cli") / "demo_site") as root, served(root, PORT) as url:
        if serve:
            typer.echo(f"serving {url} until Ctrl-C")
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
            typer.echo("stopped")
            return
        options = gather_options(collection, [url], flags={"delay": 0.0})
        display = choose_display(as_json=as_json)
        run = Run(stop=asyncio.Event(), refresh_seconds=0.0)
        crawl_and_exit(collection, options, run=run, display=display)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the display is for the crawl."""


@contextmanager
def served(root: Path, port: int) -> Iterator[str]:
    """Serves a folder on loopback; on another port if the usual one is in use."""
    handler = functools.partial(_Handler, directory=str(root))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
