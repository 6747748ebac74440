"""`storage.toml`: read and checked, with the line of what is wrong; read again when it changes; written."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sterna import toml
from sterna.archive.disk import storage_errors, sync_folder
from sterna.errors import ConfigError
from sterna.model import Record
from sterna.storage.config import CommandSpec, Config, ConnectionSpec, RuleSpec, faults
from sterna.toml import Wrong, stamp

NAME = "storage.toml"

_LITERAL = re.compile(r"(?!.*''')[^\x00-\x08\x0b-\x1f\x7f]*", re.DOTALL)
_KINDS: dict[str, type[Record]] = {"connections": ConnectionSpec, "commands": CommandSpec, "rules": RuleSpec}


class ConfigFile:
    """The file as it is now; one that is broken changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # All of these are changed by look() alone.
        self.config = Config()
        self.fault = ""  # why the file as it is now is not used
        self._seen: tuple[int, ...] = ()

    def look(self) -> bool:
        """Reads the file if it changed; True if something else holds now."""
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


def read_config(path: Path) -> Config:
    """What a file says; ConfigError tells what is wrong, in which line and which field."""
    text, written = toml.read(path)
    try:
        return config_of(written)
    except Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong


def config_of(written: Mapping[str, Any], *, is_whole: bool = True) -> Config:
    """The records of what a file says; Wrong names the place. A part may name what it does not hold."""
    for table, kind in _KINDS.items():  # one by one, so that the name of the wrong one can be told
        entries = written.get(table, {})
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            toml.convert(entry, kind, (table, name))
    config: Config = toml.convert(written, Config, ())
    for place, words in faults(config) if is_whole else ():
        raise Wrong(place, words)
    return config


def merged(old: Config, new: Config) -> Config:
    """Both; what has the same name is the new one's."""
    return Config(
        connections={**old.connections, **new.connections},
        commands={**old.commands, **new.commands},
        rules={**old.rules, **new.rules},
    )


def read_part(path: Path) -> Config:
    """What a file says that is to be added: it may name what is there already."""
    text, written = toml.read(path)
    try:
        return config_of(written, is_whole=False)
    except Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong


def check_part(path: Path, config: Config) -> None:
    """ConfigError names the line of a file to be added that makes the whole wrong."""
    text, _ = toml.read(path)
    for place, words in faults(config):
        raise ConfigError(toml.complaint(path, text, Wrong(place, words)))


def write_config(path: Path, config: Config) -> None:
    """Puts the file in place of the old one, whole or not at all."""
    begun = path.with_name(path.name + ".tmp")
    with storage_errors(path):
        # An address may hold a password.
        handle = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is a handle
            file.write(as_toml(config))
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)
        sync_folder(path.parent)


def as_toml(config: Config) -> str:
    """The file's text, as a person would write it."""
    lines: list[str] = []
    for name, connection in config.connections.items():
        lines += ["", f"[connections.{name}]", f"url = {_quoted(connection.url)}"]
    for name, command in config.commands.items():
        lines += ["", f"[commands.{name}]", f"connection = {_quoted(command.connection)}"]
        if command.sql:
            lines.append(f"sql = {_texts(command.sql)}")
        lines += [
            f"{key} = {_quoted(value)}" for key in ("call", "folder") if (value := getattr(command, key))
        ]
    for name, rule in config.rules.items():
        lines += ["", f"[rules.{name}]", f"crawler = {_quoted(rule.crawler)}"]
        for store in rule.store:
            lines += ["", f"[[rules.{name}.store]]", f"query = {_quoted(store.query)}"]
            lines.append(f"commands = {_texts(store.commands)}")
    return "\n".join([*lines[1:], ""])


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
