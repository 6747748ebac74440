"""Flags that are declared once and used by several commands."""

import inspect
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import msgspec
import typer

from sterna.errors import UsageError
from sterna.home.settings import PANELS, SETTINGS, default_text, flag_of

Command = Callable[..., None]


def with_flags(flags: Iterable[inspect.Parameter]) -> Callable[[Command], Command]:
    """Gives a command these flags in place of its `**flags`."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        command.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*parameters, *flags]
        )
        return command

    return decorate


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """One such flag; without a default it is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


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
    if kind is bool:
        flag = f"{flag}/{setting.negation or flag.replace('--', '--no-')}"
    option = typer.Option(
        flag,
        metavar=setting.metavar or None,
        help=setting.help if default in ("", "off") else f"{setting.help} (default: {default})",
        envvar=setting.environment or None,
        rich_help_panel=setting.panel,
    )
    return parameter(name, Annotated[_flag_type(name, kind), option], None)


def _flag_type(name: str, kind: Any) -> Any:
    if SETTINGS[name].is_path:
        return Path | None
    if SETTINGS[name].choices:
        return str | None
    if kind == tuple[str, ...]:
        return list[str] | None
    return next((each for each in get_args(kind) if each is not NoneType), kind) | None


def setting_values(flags: dict[str, Any]) -> dict[str, Any]:
    """The values of such flags, as options hold them; None where a flag was not given."""
    return {name: _value(value) for name, value in flags.items()}


def _value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    return strings(value) if isinstance(value, list) else value


def strings(values: list[str] | None) -> tuple[str, ...] | None:
    """What was given, without empty texts: an empty text clears what the collection remembers."""
    return tuple(value for value in values if value) if values else None
