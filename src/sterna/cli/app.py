"""`sterna` and its commands; a command's module is loaded when the command is used or listed."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sterna.cli.exits import MISSING_EXTRA, Exit, is_of_extra, reported
from sterna.version import __version__

HELP_NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

# Each command by its module and function, each group by its module alone, which has it as `app`. A host must
# stay light, and the base install lacks what the commands of a home need.
COMMANDS: dict[str, str] = {
    "crawl": "crawl.crawl",
    "ask": "ask.ask",
    "explain": "explain.explain",
    "pack": "explain.pack",
    "inspect": "explain.inspect",
    "status": "status.status",
    "crawlers": "crawlers.crawlers",
    "query": "query.query",
    "export": "export.export",
    "search": "search.search",
    "index": "search.index",
    "serve": "search.serve",
    "demo": "demo.demo",
    "doctor": "doctor.doctor",
    "follow": "follow.follow",
    "host": "",
    "keys": "keys.app",
    "storage": "storage.app",
    "trust": "trust.app",
}
HOST_COMMANDS: dict[str, str] = {
    "run": "host_run.run",
    "cgi": "host_run.write_cgi",
    "check": "host_preview.check",
    "status": "host_owner.status",
    "stop": "host_owner.stop",
    "open": "host_owner.open_doors",
    "audit": "host_owner.audit",
    "receipts": "host_receipts.receipts",
    "index": "host_own.index",
    "sitemap": "host_own.sitemap",
    "changes": "host_own.changes",
    "search": "host_own.find",
    "dry-run": "host_preview.dry_run",
}
_HIDDEN = frozenset({"follow"})  # started by other commands


def _lazy(commands: Mapping[str, str]) -> type[TyperGroup]:
    class Group(TyperGroup):
        """Knows its commands by name, and loads the one that is asked for."""

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _load(cmd_name, commands[cmd_name]) if cmd_name in commands else None

    return Group


def _load(name: str, place: str) -> Any:
    """The command; one that says what is missing, if the extra 'home' is not installed."""
    if not place:
        return get_command(_host)
    module, _, member = place.partition(".")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        loaded = getattr(import_module(f"sterna.cli.{module}"), member)
    except ModuleNotFoundError as error:
        if not is_of_extra(error):
            raise
        alone.command(name, help=MISSING_EXTRA, context_settings={"ignore_unknown_options": True})(_miss)
        return get_command(alone)
    if isinstance(loaded, typer.Typer):
        group = get_command(loaded)
        group.name = name
        return group
    alone.command(name, hidden=name in _HIDDEN)(loaded)
    return get_command(alone)


def _miss(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    sys.stderr.write(f"sterna: {MISSING_EXTRA}\n")
    raise typer.Exit(int(Exit.USAGE))


_host = typer.Typer(
    name="host",
    help="Take in crawlers of others at your own site.",
    cls=_lazy(HOST_COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP_NAMES,
)


@_host.callback()
def _host_options() -> None:
    pass


def make_app() -> typer.Typer:
    """The commands."""
    app = typer.Typer(
        name="sterna",
        cls=_lazy(COMMANDS),
        help="Crawl web sites politely into a collection that can be resumed, trusted and queried.",
        epilog="Exit codes: 0 finished, 1 nothing could be fetched, 2 invalid usage, 3 stopped and can be"
        " continued, 4 sites ask to wait, 5 folder is not usable, 6 disk is full or read-only.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=HELP_NAMES,
    )
    app.callback()(_options)
    return app


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
    """Runs the command that the arguments name."""
    with reported():
        make_app()()
