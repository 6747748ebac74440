"""What the user writes in `storage.toml`: connections, commands and the rules that join them to crawlers.

Fiedler-Hammer 4.7: the connection manager, the command manager and the storage rules, each by its name.
"""

import re
from collections.abc import Iterator

import msgspec

from sterna.model import Record
from sterna.storage.statements import SqlFault, statements_of
from sterna.toml import Place

Fault = tuple[Place, str]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ConnectionSpec(Record, frozen=True, array_like=False, forbid_unknown_fields=True):
    """A database of the user's."""

    url: str  # as SQLAlchemy writes it; ${NAME} is taken from the environment


class CommandSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """An operation on a database: one word of its vocabulary."""

    connection: str
    sql: str | tuple[str, ...] = ()
    call: str = ""  # module:function
    folder: str = ""  # in which the module lies; that of storage.toml if not given


class StoreSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """A query, and the commands that store its rows."""

    query: str
    commands: tuple[str, ...]


class RuleSpec(Record, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """What is stored of the crawlers whose name matches."""

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


def faults(config: Config) -> Iterator[Fault]:
    """What the types do not say."""
    for table in ("connections", "commands", "rules"):
        for name in getattr(config, table):
            if not _NAME.fullmatch(name):
                yield (table, name), "a name has only letters, digits, _ and -, at most 100 of them"
    for name, command in config.commands.items():
        yield from _command_faults(command, ("commands", name), config)
    for name, rule in config.rules.items():
        yield from _rule_faults(rule, ("rules", name), config)


def _command_faults(command: CommandSpec, place: Place, config: Config) -> Iterator[Fault]:
    if command.connection not in config.connections:
        yield (*place, "connection"), _unknown("connection", command.connection, config.connections)
    if bool(command.sql) == bool(command.call):
        yield place, "a command has either sql or call"
    if command.call and not _CALL.fullmatch(command.call):
        yield (*place, "call"), f"{command.call!r} cannot be: write it like my_storage:add_page"
    try:
        if command.sql and not statements_of(command.sql):
            yield (*place, "sql"), "there is no statement in it"
    except SqlFault as fault:
        yield (*place, "sql"), str(fault)


def _rule_faults(rule: RuleSpec, place: Place, config: Config) -> Iterator[Fault]:
    if not rule.crawler:
        yield (*place, "crawler"), "the name or pattern is empty: * stands for all crawlers"
    if not rule.store:
        yield place, "a rule stores something: write [[rules.NAME.store]] with a query and commands"
    for number, store in enumerate(rule.store):
        here = (*place, "store", number)
        if not store.query.strip():
            yield (*here, "query"), "the query is empty: write one such as SELECT url, title FROM page"
        if not store.commands:
            yield (*here, "commands"), "name at least one command that stores the rows"
        for name in store.commands:
            if name not in config.commands:
                yield (*here, "commands"), _unknown("command", name, config.commands)


def _unknown(word: str, name: str, known: dict[str, ConnectionSpec] | dict[str, CommandSpec]) -> str:
    there = f"there are {', '.join(known)}" if known else "there is none"
    return f"there is no {word} {name!r}: {there}"
