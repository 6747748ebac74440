"""`sterna` and its commands."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from sterna import __version__
from sterna.cli.exits import Exit, fail, is_full, no_room
from sterna.errors import SternaError

# Each command by its module and function, each group by the module that has it as `app`. Only what was asked
# for is loaded: a host must stay light, and the base install lacks what the other commands need.
_COMMANDS: dict[str, tuple[str, str]] = {
    "crawl": ("crawl", "crawl"),
    "ask": ("ask", "ask"),
    "explain": ("explain", "explain"),
    "pack": ("explain", "pack"),
    "inspect": ("explain", "inspect"),
    "status": ("status", "status"),
    "crawlers": ("away", "crawlers"),
    "query": ("query", "query"),
    "export": ("export", "export"),
    "search": ("search", "search"),
    "index": ("index", "index"),
    "serve": ("serve", "serve"),
    "demo": ("demo", "demo"),
    "doctor": ("doctor", "doctor"),
    "follow": ("follow", "follow"),
}
_GROUPS: dict[str, str] = {"host": "host", "keys": "keys", "storage": "storage", "trust": "trust"}
_HIDDEN = frozenset({"follow"})  # what other commands start
# What the extra 'home' installs.
_EXTRA = frozenset({"duckdb", "fastwarc", "pyarrow", "pytz", "sqlglot", "tantivy"})
_MISSING = "this command needs the extra 'home': pip install 'sterna[home]'"


def make_app(words: Sequence[str]) -> typer.Typer:
    """The commands; if the first word is the name of one, that one alone."""
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
    app.callback()(_options)
    first = next((word for word in words if not word.startswith("-")), "")
    names = [*_COMMANDS, *_GROUPS]
    for name in [first] if first in names else names:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    module, function = _COMMANDS.get(name) or (_GROUPS[name], "")
    try:
        loaded = import_module(f"sterna.cli.{module}")
    except ModuleNotFoundError as error:
        if not _is_of_extra(error):
            raise
        app.command(name, help=_MISSING, context_settings={"ignore_unknown_options": True})(_miss)
        return
    if function:
        app.command(name, hidden=name in _HIDDEN)(getattr(loaded, function))
    else:
        app.add_typer(loaded.app, name=name)


def _miss(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    sys.stderr.write(f"sterna: {_MISSING}\n")
    raise typer.Exit(int(Exit.USAGE))


def _is_of_extra(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] in _EXTRA


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sterna {__version__}")
        raise typer.Exit


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
        make_app(sys.argv[1:])()
    except SternaError as error:
        raise fail(error) from None
    except OSError as error:
        if not is_full(error):
            raise
        raise no_room(error) from None
    except ModuleNotFoundError as error:
        if not _is_of_extra(error):
            raise
        sys.stderr.write(f"sterna: {_MISSING}\n")
        raise SystemExit(int(Exit.USAGE)) from None
