"""`sterna` and its commands; a command's module is loaded when the command is used or listed."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sterna.cli.exits import Exit, missing_extra, reported
from sterna.cli.flags import command_group
from sterna.version import __version__

# Each command by its module and function, each group by its module alone, which has it as `app`. A host must
# stay light, and the base install lacks what the commands of a home need.
COMMANDS: dict[str, str] = {
    "crawl": "crawl.crawl",
    "ask": "ask.ask",
    "explain": "explain.explain",
    "pack": "explain.pack",
    "inspect": "explain.inspect",
    "status": "status.status",
    "repair": "repair.repair",
    "crawlers": "crawlers.crawlers",
    "query": "query.query",
    "export": "export.export",
    "search": "search.search",
    "index": "search.index",
    "serve": "search.serve",
    "demo": "demo.demo",
    "doctor": "doctor.doctor",
    "follow": "follow.follow",
    "host": "app.host",
    "keys": "keys.app",
    "storage": "storage.app",
    "trust": "trust.app",
}
HOST_COMMANDS: dict[str, str] = {
    "init": "host_init.init",
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
    module, _, member = place.partition(".")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        loaded = getattr(import_module(f"sterna.cli.{module}"), member)
    except ModuleNotFoundError as error:
        if not (text := missing_extra(error)):
            raise

        def miss(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
            sys.stderr.write(f"sterna: {text}\n")
            raise typer.Exit(int(Exit.USAGE))

        alone.command(name, help=text, context_settings={"ignore_unknown_options": True})(miss)
        return get_command(alone)
    if isinstance(loaded, typer.Typer):
        group = get_command(loaded)
        group.name = name
        return group
    alone.command(name, hidden=name == "follow")(loaded)  # other commands start that one
    return get_command(alone)


def _group(help: str, commands: Mapping[str, str], **more: Any) -> typer.Typer:
    return command_group(
        help, cls=_lazy(commands), add_completion=False, pretty_exceptions_enable=False, **more
    )


host = _group("Take in crawlers of others at your own site.", HOST_COMMANDS)


@host.callback()
def _host_options() -> None:
    pass


def make_app() -> typer.Typer:
    app = _group(
        "Crawl web sites politely into a collection that can be resumed, trusted and queried.",
        COMMANDS,
        name="sterna",
        epilog="Exit codes: 0 finished, 1 nothing could be fetched, 2 invalid usage, 3 stopped and can be"
        " continued, 4 sites ask to wait, 5 folder is not usable, 6 disk is full or read-only.",
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"sterna {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=show_version, is_eager=True, help="Show the version and exit."
            ),
        ] = False,
    ) -> None:
        pass

    return app


def main() -> None:
    with reported():
        make_app()()
