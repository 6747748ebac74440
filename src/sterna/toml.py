"""Configuration files in TOML: read, converted into records, errors with their line."""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from sterna.errors import ConfigError, one_line

MAX_FILE_BYTES = 4 * 1024 * 1024

KeyPath = tuple[str | int, ...]  # of a value: the names and indexes that lead to it

_AT = re.compile(r" - at `([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_HEADER = re.compile(r"(\[\[?)\s*([^\]]+?)\s*\]")
_WORD = re.compile(r""""[^"]*"|'[^']*'|[A-Za-z0-9_-]+""")
_KEY = re.compile(rf"((?:{_WORD.pattern})(?:\s*\.\s*(?:{_WORD.pattern}))*)\s*=")
_TRIPLE = re.compile(r'"""|\'\'\'')


class Wrong(Exception):
    """An invalid value, and its place in the file."""

    def __init__(self, place: KeyPath, words: str) -> None:
        super().__init__(words)
        self.place = place
        self.words = words


def stamp(path: Path) -> tuple[int, ...]:
    """A value that differs after the file was changed."""
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> tuple[str, dict[str, Any]]:
    """The text of a file and its values; raises ConfigError if it is not TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ConfigError(f"{path} is too large: the limit is {max_bytes:,} bytes")
        text = content.decode("utf-8-sig")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: it is not UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(one_line(f"{path} is not valid TOML: {error}")) from error
    except ValueError as error:  # from int(), which refuses thousands of digits
        raise ConfigError(f"{path} is not valid TOML: a number in it has too many digits") from error


def convert(value: object, kind: type[Any], place: KeyPath) -> Any:
    """The value as a record of this type; raises Wrong with the place below `place` that is invalid."""
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


def complaint(path: Path, text: str, wrong: Wrong) -> str:
    """The error in one line: file, line, field, words."""
    number = line_of(text, wrong.place)
    field = ".".join(map(str, wrong.place))
    where = ", ".join(filter(None, (str(path), f"line {number}" if number else "", field)))
    return one_line(f"{where}: {' '.join(wrong.words.split())}")


def line_of(text: str, place: KeyPath) -> int:
    """The line of a value, or of the table or list that contains it; 0 if there is none."""
    table: KeyPath = ()
    counts: Counter[KeyPath] = Counter()
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


def _words(dotted: str) -> KeyPath:
    return tuple(word.strip("\"'") for word in _WORD.findall(dotted))
