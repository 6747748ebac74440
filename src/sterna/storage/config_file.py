"""`storage.toml`: read and checked, with the line of what is wrong; read again when it changes; written."""

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sterna.archive.disk import storage_errors, sync_folder
from sterna.errors import ConfigError
from sterna.model import Record
from sterna.storage.config import CommandSpec, Config, ConnectionSpec, Place, RuleSpec, faults

NAME = "storage.toml"
MAX_FILE_BYTES = 4 * 1024 * 1024

_AT = re.compile(r" - at `([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_HEADER = re.compile(r"(\[\[?)\s*([^\]]+?)\s*\]")
_WORD = re.compile(r""""[^"]*"|'[^']*'|[A-Za-z0-9_-]+""")
_KEY = re.compile(rf"((?:{_WORD.pattern})(?:\s*\.\s*(?:{_WORD.pattern}))*)\s*=")
_TRIPLE = re.compile(r'"""|\'\'\'')
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


def stamp(path: Path) -> tuple[int, ...]:
    """What differs when a file was changed."""
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_config(path: Path) -> Config:
    """What a file says; ConfigError tells what is wrong, in which line and which field."""
    text = _text_of(path)
    try:
        written = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    try:
        return config_of(written)
    except Wrong as wrong:
        raise ConfigError(_line(path, text, wrong)) from wrong


def config_of(written: Mapping[str, Any], *, is_whole: bool = True) -> Config:
    """The records of what a file says; Wrong names the place. A part may name what it does not hold."""
    for table, kind in _KINDS.items():  # one by one, so that the name of the wrong one can be told
        entries = written.get(table, {})
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            _convert(entry, kind, (table, name))
    config: Config = _convert(written, Config, ())
    for place, words in faults(config) if is_whole else ():
        raise Wrong(place, words)
    return config


class Wrong(Exception):
    """What cannot be, and where in the file it stands."""

    def __init__(self, place: Place, words: str) -> None:
        super().__init__(words)
        self.place = place
        self.words = words


def merged(old: Config, new: Config) -> Config:
    """Both; what has the same name is the new one's."""
    return Config(
        connections={**old.connections, **new.connections},
        commands={**old.commands, **new.commands},
        rules={**old.rules, **new.rules},
    )


def read_part(path: Path) -> Config:
    """What a file says that is to be added: it may name what is there already."""
    text = _text_of(path)
    try:
        return config_of(tomllib.loads(text), is_whole=False)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    except Wrong as wrong:
        raise ConfigError(_line(path, text, wrong)) from wrong


def check_part(path: Path, config: Config) -> None:
    """ConfigError names the line of a file to be added that makes the whole wrong."""
    text = _text_of(path)
    for place, words in faults(config):
        raise ConfigError(_line(path, text, Wrong(place, words)))


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


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than it may be: {MAX_FILE_BYTES:,} bytes are the most")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no TOML: it is not written in UTF-8") from error


def _convert(value: object, kind: type[Any], place: Place) -> Any:
    try:
        return msgspec.convert(value, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        words = str(error)
        if at := _AT.search(words):
            words = words[: at.start()]
            steps = _STEP.findall(at[1])
            place = (*place, *(name or int(index) for name, index in steps))
        if unknown := _UNKNOWN.search(words):
            place = (*place, unknown[1])
            words = "unknown field"
        raise Wrong(place, words) from error


def _line(path: Path, text: str, wrong: Wrong) -> str:
    number = line_of(text, wrong.place)
    field = ".".join(map(str, wrong.place))
    where = ", ".join(filter(None, (str(path), f"line {number}" if number else "", field)))
    return f"{where}: {' '.join(wrong.words.split())}"


def line_of(text: str, place: Place) -> int:
    """The line in which a value stands, or the table or list that holds it; 0 if there is none."""
    table: Place = ()
    counts: Counter[Place] = Counter()
    best, is_inside = (0, 0), False
    for number, line in enumerate(text.splitlines(), start=1):
        was_inside, is_inside = is_inside, is_inside ^ (len(_TRIPLE.findall(line)) % 2 == 1)
        if was_inside:
            continue
        if header := _HEADER.match(line.strip()):
            table = _words(header[2])
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            here = table
        elif key := _KEY.match(line.strip()):
            here = (*table, *_words(key[1]))
        else:
            continue
        if here == place[: len(here)] and len(here) > best[0]:
            best = (len(here), number)
    return best[1]


def _words(dotted: str) -> Place:
    return tuple(word.strip("\"'") for word in _WORD.findall(dotted))
