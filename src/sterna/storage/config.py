"""`storage.toml`: connections, commands and the rules that join them to crawlers (Fiedler-Hammer 4.7)."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from sterna import toml
from sterna.archive.disk import replace_file, storage_errors
from sterna.errors import ConfigError
from sterna.model import Record
from sterna.storage.statements import InvalidSql, statements_of
from sterna.toml import KeyPath, Wrong, stamp

NAME = "storage.toml"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ConnectionSpec(Record, frozen=True, array_like=False, forbid_unknown_fields=True):
    """A database of the user."""

    url: str  # in SQLAlchemy's syntax; ${NAME} is replaced from the environment


class CommandSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """An operation on a database: one word of its vocabulary."""

    connection: str
    sql: str | tuple[str, ...] = ()
    call: str = ""  # module:function
    folder: str = ""  # of the module; by default that of storage.toml


class StoreSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """A query, and the commands that store its rows."""

    query: str
    commands: tuple[str, ...]


class RuleSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """What is stored of the crawlers whose name matches the pattern."""

    crawler: str = "*"
    store: tuple[StoreSpec, ...]


class Config(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    connections: dict[str, ConnectionSpec] = msgspec.field(default_factory=dict)
    commands: dict[str, CommandSpec] = msgspec.field(default_factory=dict)
    rules: dict[str, RuleSpec] = msgspec.field(default_factory=dict)

    def connections_of(self, rule: str) -> list[str]:
        """The databases into which a rule stores, each once."""
        commands = [name for store in self.rules[rule].store for name in store.commands]
        return list(dict.fromkeys(self.commands[name].connection for name in commands))


def faults(config: Config) -> Iterator[Wrong]:
    """Mistakes that the types do not exclude, with their places."""
    for table in _TABLES:
        for name in getattr(config, table):
            if not _NAME.fullmatch(name):
                yield Wrong((table, name), "a name may have letters, digits, _ and -, at most 100 characters")
    for name, command in config.commands.items():
        yield from _command_faults(command, ("commands", name), config)
    for name, rule in config.rules.items():
        yield from _rule_faults(rule, ("rules", name), config)


def _command_faults(command: CommandSpec, place: KeyPath, config: Config) -> Iterator[Wrong]:
    if command.connection not in config.connections:
        yield Wrong((*place, "connection"), _unknown("connection", command.connection, config.connections))
    if bool(command.sql) == bool(command.call):
        yield Wrong(place, "a command has either sql or call")
    if command.call and not _CALL.fullmatch(command.call):
        yield Wrong((*place, "call"), f"{command.call!r} is malformed: write it like my_storage:add_page")
    try:
        if command.sql and not statements_of(command.sql):
            yield Wrong((*place, "sql"), "it contains no statement")
    except InvalidSql as fault:
        yield Wrong((*place, "sql"), str(fault))


def _rule_faults(rule: RuleSpec, place: KeyPath, config: Config) -> Iterator[Wrong]:
    if not rule.crawler:
        yield Wrong((*place, "crawler"), "the name or pattern is empty: * stands for all crawlers")
    if not rule.store:
        yield Wrong(place, "the rule stores nothing: add [[rules.NAME.store]] with a query and commands")
    for number, store in enumerate(rule.store):
        here = (*place, "store", number)
        if not store.query.strip():
            yield Wrong((*here, "query"), "the query is empty: write one such as SELECT url, title FROM page")
        if not store.commands:
            yield Wrong((*here, "commands"), "name at least one command that stores the rows")
        for name in store.commands:
            if name not in config.commands:
                yield Wrong((*here, "commands"), _unknown("command", name, config.commands))


def _unknown(word: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {word} {name!r} (defined: {', '.join(known) or 'none'})"


# -- the file ----------------------------------------------------------------------------------------------

_LITERAL = re.compile(r"(?!.*''')[^\x00-\x08\x0b-\x1f\x7f]*", re.DOTALL)
_TABLES: dict[str, type[Record]] = {"connections": ConnectionSpec, "commands": CommandSpec, "rules": RuleSpec}


@dataclass(eq=False, repr=False)
class ConfigFile:
    """The file as it is now; while it is malformed, the configuration from before stays in force."""

    path: Path
    # Changed by look() alone.
    config: Config = field(default_factory=Config)
    fault: str = ""  # why the present file is not used
    _seen: tuple[int, ...] = ()

    def look(self) -> bool:
        """Reads the file if it changed; True if the configuration or the fault differs now."""
        seen = stamp(self.path)
        if seen == self._seen:
            return False
        self._seen = seen
        was = (self.config, self.fault)
        try:
            self.config, self.fault = (read_config(self.path) if self.path.exists() else Config()), ""
        except ConfigError as error:
            self.fault = str(error)
        return was != (self.config, self.fault)


def read_config(path: Path, *, is_part: bool = False) -> Config:
    """The configuration of a file, or a part to be merged into one; ConfigError names line and field."""
    text, written = toml.read(path)
    try:
        for table, kind in _TABLES.items():  # one by one, so that the error has the name of the entry
            entries = written.get(table, {})
            for name, entry in entries.items() if isinstance(entries, dict) else ():
                toml.convert(entry, kind, (table, name))
        config: Config = toml.convert(written, Config, ())
        for fault in () if is_part else faults(config):
            raise fault
    except Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong
    return config


def merged(old: Config, new: Config) -> Config:
    """Both; entries of the new one replace those of the same name."""
    return Config(**{table: getattr(old, table) | getattr(new, table) for table in _TABLES})


def check_part(path: Path, config: Config) -> None:
    """Checks the merged configuration; ConfigError names the line of the added file that is wrong."""
    text, _ = toml.read(path)
    for wrong in faults(config):
        raise ConfigError(toml.complaint(path, text, wrong))


def write_config(path: Path, config: Config) -> None:
    with storage_errors(path):
        replace_file(path, as_toml(config).encode(), mode=0o600)  # an address may contain a password


def as_toml(config: Config) -> str:
    """The file's text, as a person would write it."""
    lines: list[str] = []
    for table in _TABLES:
        for name, entry in getattr(config, table).items():
            lines += ["", f"[{table}.{name}]", *_fields(entry)]
            for store in getattr(entry, "store", ()):
                lines += ["", f"[[{table}.{name}.store]]", *_fields(store)]
    return "\n".join([*lines[1:], ""])


def _fields(entry: Record) -> list[str]:
    return [
        f"{key} = {_texts(value)}"
        for key, value in asdict(entry).items()
        if key != "store" and (value or key == "url")
    ]


def _texts(value: str | Iterable[str]) -> str:
    if isinstance(value, str):
        return _quoted(value)
    quoted = [_quoted(each) for each in value]
    one_line = f"[{', '.join(quoted)}]"
    return one_line if len(one_line) < 80 else "\n".join(["[", *(f"  {each}," for each in quoted), "]"])


def _quoted(text: str) -> str:
    if "\n" in text and _LITERAL.fullmatch(text) and not text.endswith("'"):
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
