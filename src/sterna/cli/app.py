"""`sterna` and its commands; a command's module is loaded when the command is used or listed."""

import shlex
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sterna.cli.commands import COMMANDS, HOST_COMMANDS, Entry
from sterna.cli.exits import Exit, reported
from sterna.cli.flags import command_group
from sterna.errors import UsageError, missing_extra
from sterna.version import __version__


def _lazy(commands: Mapping[str, Entry]) -> type[TyperGroup]:
    class Group(TyperGroup):
        """Knows its commands by name, and loads the one that is asked for."""

        is_listing = False  # changed by format_help() while it runs

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return None
            entry = commands[cmd_name]
            if self.is_listing:
                return TyperCommand(cmd_name, help=entry.help, hidden=not entry.help)
            return _load(cmd_name, entry.place)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self.is_listing = True
            try:
                super().format_help(ctx, formatter)
            finally:
                self.is_listing = False

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in commands and not args[0].startswith("-"):
                raise UsageError(_unknown_command(args[0], ctx.command_path, commands))
            return super().resolve_command(ctx, args)

    return Group


def _unknown_command(name: str, group: str, commands: Mapping[str, Entry]) -> str:
    if "://" in name:
        return f"{name} is not a command: to crawl it: {shlex.join(['sterna', 'crawl', name])}"
    near = get_close_matches(name, commands, n=1)
    hint = f"did you mean '{group} {near[0]}'?" if near else f"'{group} --help' lists them"
    return f"there is no command '{group} {name}': {hint}"


def _load(name: str, place: str) -> Any:
    """The command; one that says what is missing, if the extra 'home' is not installed."""
    module, _, member = place.partition(".")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        loaded = getattr(import_module(f"sterna.cli.{module}"), member)
    except ModuleNotFoundError as error:
        if not (missing := missing_extra(error)):
            raise
        text = f"this command {missing}"

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


def _group(help: str, commands: Mapping[str, Entry], **more: Any) -> typer.Typer:
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
        code = get_command(make_app()).main(prog_name="sterna", standalone_mode=False)
        raise SystemExit(code or 0)
