"""Flags that are declared once and used by several commands."""

import inspect
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import msgspec
import typer

from sterna.errors import UsageError
from sterna.home.settings import PANELS, SETTINGS, default_text, flag_of

Command = Callable[..., None]


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


def option(metavar: str, help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option with a value; without names it is called as its parameter."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def switch(help: str, *names: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


FolderArgument = Annotated[Path, argument("DIR", "The collection.")]
JsonOption = Annotated[bool, switch("One JSON object.", "--json")]
SafeCellsOption = Annotated[
    bool, switch("Of csv: put ' before texts that a spreadsheet would take for formulas.", "--safe-cells")
]


def command_group(help: str, **more: Any) -> typer.Typer:
    """An empty group of commands, such as `sterna keys`."""
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
    return typer.Typer(help=help, no_args_is_help=True, context_settings=settings, **more)


def with_flags(flags: Iterable[inspect.Parameter]) -> Callable[[Command], Command]:
    """Gives a command these flags in place of its `**flags`."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [
            each.replace(kind=each.KEYWORD_ONLY)
            for each in signature.parameters.values()
            if each.kind is not each.VAR_KEYWORD
        ]
        command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
        return command

    return decorate


def listen(flag: str, written: str, *, example: str) -> socket.socket:
    """A socket that listens on HOST:PORT; raises UsageError for an invalid or unavailable address."""
    host, _, port = written.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise UsageError(f"{flag} {written} is invalid: write it as {example}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]") or "127.0.0.1", int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(f"{flag} {written} is not available: {error}") from error


# -- settings of a crawl -----------------------------------------------------------------------------------


def setting_flags(names: Collection[str], options: type[msgspec.Struct]) -> Iterator[inspect.Parameter]:
    """Flags for these settings of a crawl, which are fields of `options`; None if a flag is not given."""
    fields = {field.name: field for field in msgspec.structs.fields(options)}
    for panel in PANELS:
        for name, setting in SETTINGS.items():
            if setting.panel == panel and setting.is_flag and name in names:
                field = fields[name]
                yield _setting_flag(name, field.type, default_text(name, field.default))


def _setting_flag(name: str, kind: Any, default: str) -> inspect.Parameter:
    setting, flag = SETTINGS[name], flag_of(name)
    parser = None
    if kind is bool:
        flag = f"{flag}/{setting.negation or flag.replace('--', '--no-')}"
    elif {int, float}.intersection({kind, *get_args(kind)}):
        parser = partial(_read_number, name, kind)
    option = typer.Option(
        flag,
        parser=parser,
        metavar=setting.metavar or None,
        help=setting.help if default in ("", "off") else f"{setting.help} (default: {default})",
        envvar=setting.environment or None,
        rich_help_panel=setting.panel,
    )
    if setting.is_path:
        kind = Path
    elif setting.choices:
        kind = str
    elif kind == tuple[str, ...]:
        kind = list[str]
    else:
        kind = next((each for each in get_args(kind) if each is not NoneType), kind)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _read_number(name: str, kind: Any, text: str) -> Any:
    from sterna.home.options import read_value  # noqa: PLC0415 - a host must stay light

    return read_value(name, text, kind, is_text=True)


def setting_values(flags: dict[str, Any]) -> dict[str, Any]:
    """The values of such flags, as options hold them; None where a flag was not given."""
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if isinstance(value, list):
            values[name] = strings(value)
        else:
            values[name] = str(value.absolute()) if isinstance(value, Path) else value
    return values


def strings(values: list[str] | None) -> tuple[str, ...] | None:
    """What was given, without empty texts: an empty text clears what the collection remembers."""
    return tuple(value for value in values if value) if values else None


def read_age(text: str, flag: str = "--refresh") -> float:
    """Seconds in an age such as 0, 90m, 12h or 7d; any other than 0 has a unit."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, None)
    try:
        seconds = float(number) * (unit or 1.0)
    except ValueError:
        seconds = -1.0
    if unit is None and 0 < seconds < float("inf"):
        raise UsageError(f"{flag} {text} has no unit: write {text}d for days, {text}h, {text}m or {text}s")
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{flag} {text} is not an age: write it like 90m, 12h or 7d")
    return seconds
