"""Compiles the reader in C: python build.py, after an installation; without a compiler it says so in a line.

It needs nothing but the standard library, because it also runs while Sterna is being installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from html.entities import html5
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "libreader.so.1"  # Python takes what ends with .so for a module
SLOWER = "pages are read in Python alone, at about half the speed"
SECONDS = 120.0
_FLAGS = (
    *("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra"),
    *("-fstack-protector-strong", "-Wl,-z,relro,-z,now"),
)


def compile_reader() -> str:
    """Compiles the reader unless that is done; returns why it cannot, "" if it can."""
    sources = sorted(HERE.glob("*.[ch]"))
    if not sources:
        return "" if LIBRARY.exists() else "its sources are not there"
    newest = max(path.stat().st_mtime for path in (*sources, Path(__file__)))
    if LIBRARY.exists() and LIBRARY.stat().st_mtime > newest:
        return ""
    LIBRARY.unlink(missing_ok=True)  # one of other sources must not be used
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "")
    if not compiler:
        return "no C compiler"
    with tempfile.TemporaryDirectory(dir=HERE) as work:
        (Path(work) / "references.h").write_text(references())
        made = Path(work) / LIBRARY.name
        command = [*compiler.split(), *_FLAGS, "-I", work, "-o", str(made), *map(str, sources_of(HERE))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603 - our own
        except (OSError, subprocess.SubprocessError) as error:
            return f"{compiler} does not run: {error}"
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return f"{compiler} failed: {lines[0] if lines else f'exit code {done.returncode}'}"
        made.replace(LIBRARY)
    return ""


def sources_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.c"))


def references() -> str:
    """The named character references as C, in the order in which they are searched."""
    names = sorted(html5, key=str.encode)
    rows = [_row(name, html5[name].encode()) for name in names]
    firsts = [
        next((at for at, name in enumerate(names) if ord(name[0]) >= byte), len(names)) for byte in range(129)
    ]
    longest_open = max(len(name) for name in names if not name.endswith(";"))
    return (
        "/* Made by build.py of Python's own table. */\n"
        "static const struct { const char *name; unsigned char length, size; const char *value; }\n"
        "    REFERENCES[] = {\n"
        + "".join(rows)
        + "};\n"
        + f"static const short REFERENCES_FROM[129] = {{{', '.join(map(str, firsts))}}};\n"
        + f"enum {{ REFERENCE_LONGEST = {max(map(len, names))}, REFERENCE_LONGEST_OPEN = {longest_open} }};\n"
    )


def _row(name: str, value: bytes) -> str:
    written = "".join(f"\\x{byte:02x}" for byte in value)
    return f'    {{"{name}", {len(name)}, {len(value)}, "{written}"}},\n'


if __name__ == "__main__":
    if reason := compile_reader():
        sys.stderr.write(
            f"sterna: the reader in C was not built ({reason}): {SLOWER}; apt-get install gcc libc6-dev\n"
        )
