"""`sterna` and its commands."""

from typing import Annotated

import typer

from sterna import __version__
from sterna.cli import ask, crawl, demo, doctor, explain, query, status
from sterna.cli.exits import fail
from sterna.errors import SternaError

app = typer.Typer(
    name="sterna",
    help="Crawl web sites politely into a collection that can be resumed, trusted and queried.",
    epilog="Exit codes: 0 finished, 1 nothing could be fetched, 2 wrong usage, 3 stopped and can go on,"
    " 4 sites ask to wait, 5 folder cannot be used, 6 disk refuses.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("crawl")(crawl.crawl)
app.command("ask")(ask.ask)
app.command("explain")(explain.explain)
app.command("pack")(explain.pack)
app.command("inspect")(explain.inspect)
app.command("status")(status.status)
app.command("query")(query.query)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sterna {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command; an error of ours is one line and an exit code."""
    try:
        app()
    except SternaError as error:
        raise fail(error) from None
