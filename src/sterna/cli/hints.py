"""Hints that run as printed: commands under the name by which this one can be called from here."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from sterna.cli.commands import COMMANDS

_COMMAND = re.compile(rf"(?<![\w./-])sterna (?=(?:{'|'.join(COMMANDS)})\b)")


def runnable(text: str) -> str:
    """The text with each `sterna COMMAND` as the user's shell finds it: `.venv/bin/sterna COMMAND`."""
    if "sterna " not in text or (name := program()) == "sterna":
        return text
    return _COMMAND.sub(lambda _: f"{name} ", text)


def program() -> str:
    """How the user calls this program: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if "/" not in sys.argv[0]:
        return "sterna"
    if called.name == "__main__.py":  # python -m sterna
        called = Path(sys.executable).with_name("sterna")
        if not called.exists():
            return f"{shlex.quote(sys.executable)} -m sterna"
    elif called.name != "sterna":
        return "sterna"
    found = shutil.which("sterna")
    if found and os.path.realpath(found) == os.path.realpath(called):
        return "sterna"
    path = called.absolute()
    near = os.path.relpath(path)
    return shlex.quote(str(path) if near.startswith("..") else near if "/" in near else f"./{near}")
