"""A spec in a TOML file; what is wrong with it is told with the file and the line."""

import re
import tomllib
from pathlib import Path

from sterna.crawler.spec import Spec
from sterna.crawler.spec_fields import FieldError, part_of, wrong
from sterna.errors import SpecError

MAX_SPEC_BYTES = 1024 * 1024

_WORD = r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'"""
_KEY = re.compile(rf"\s*((?:{_WORD})(?:\s*\.\s*(?:{_WORD}))*)\s*=")
_HEAD = re.compile(rf"\s*\[\[?\s*((?:{_WORD})(?:\s*\.\s*(?:{_WORD}))*)\s*\]")
_TRIPLE = re.compile(r'"""|\'\'\'')


def load_spec(path: Path) -> Spec:
    """The spec in a file; SpecError names file, line and field, what was found and what is allowed."""
    text = _text_of(path)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is no TOML: {error}") from error
    try:
        spec = part_of(Spec, data)
        _check_files(spec, path.parent)
    except FieldError as error:
        raise SpecError(f"{path}{_place(text, error.field)}: {error}") from error
    return spec


def line_of(text: str, field: str) -> int:
    """The line of a TOML text in which a field, or the table that it belongs to, is set; 0 if none is."""
    lines = _lines(text)
    while field and field not in lines:
        field = field.rpartition(".")[0]
    return lines.get(field, 0)


def _lines(text: str) -> dict[str, int]:
    """The dotted names that a TOML text sets, each with its first line."""
    found: dict[str, int] = {}
    table, is_inside = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        if not is_inside:
            if head := _HEAD.match(line):
                table = _name(head[1])
                found.setdefault(table, number)
            elif key := _KEY.match(line):
                found.setdefault(f"{table}.{_name(key[1])}".lstrip("."), number)
        is_inside ^= len(_TRIPLE.findall(line)) % 2 == 1
    return found


def _place(text: str, field: str) -> str:
    line = line_of(text, field)
    return f":{line}" if line else ""


def _name(written: str) -> str:
    """A dotted key without its quotes and spaces."""
    return ".".join(word.strip("\"'") for word in re.findall(_WORD, written))


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
        if len(content) > MAX_SPEC_BYTES:
            raise SpecError(f"{path} is larger than a spec may be: {MAX_SPEC_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is no TOML: it is not written in UTF-8") from error


def _check_files(spec: Spec, folder: Path) -> None:
    for field, names in (("rules", spec.rules), ("gather", spec.gather)):
        for name in names:
            if not (folder / name).is_file():
                raise wrong(field, name, f"a file that is there (looked for in {folder})")
