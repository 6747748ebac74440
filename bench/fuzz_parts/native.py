"""Has the reader in C read spoiled pages: with sanitizers in a process apart, and beside the tree."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.fuzz_parts.apart import Course
from bench.fuzz_parts.knocking import chance_of
from bench.fuzz_parts.page_inputs import fetched
from bench.fuzz_parts.results import Part

from sterna.errors import ReadError
from sterna.model import Field
from sterna.web.charset import charset_of, decode_text
from sterna.web.content_coding import decode
from sterna.web.markup import Findings
from sterna.web.native import build
from sterna.web.native.judge import is_different
from sterna.web.native.reader import READ, NativeReader
from sterna.web.tree import parse
from sterna.web.walk import CloseReading, read_tree, walk

KIND = "read: in C"
EVERYTHING: tuple[Field, ...] = tuple(sorted(READ))
MAIN = Path(__file__).with_name("sanitized.c")
FLAGS = ("-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MOST_BYTES = 1_000_000


class Unsound(Exception):
    """The reader broke a rule of C, or said something that no tree says."""


def read_in_c(parts: Sequence[Part], folder: Path, course: Course) -> None:
    program, reader = compile_sanitized(folder), NativeReader()
    for place, part in enumerate(parts):
        print(f"{part.kind}: {part.count:,}", flush=True)
        sanitized = _Sanitized(program)
        for number in range(part.first, part.first + part.count):
            course.begin(place, number)
            try:
                answer = _answer(_page(part, number), reader, sanitized)
            except Unsound as error:
                course.fault(part, number, error)
                sanitized.close()
                sanitized = _Sanitized(program)
            else:
                course.end(part, number, answer)
        sanitized.close()


def _page(part: Part, number: int) -> str:
    response = fetched("read: page", chance_of(part.seed, "read: page", number))
    try:
        body = decode(response.body, response.content_encoding, max_bytes=MOST_BYTES).body
    except ReadError:
        body = response.body
    return decode_text(body, charset_of(response.content_type))[0]


def _answer(text: str, reader: NativeReader, sanitized: "_Sanitized") -> str:
    doubt = sanitized.read(text.encode("utf-8", "surrogatepass"))
    found = reader.read(text, agent="sterna", wants=EVERYTHING)
    if reader.doubt != doubt:
        raise Unsound(f"in doubt at {reader.doubt}, with sanitizers at {doubt}")
    if found is None:
        return "in doubt"
    found.hrefs = reader.hrefs()
    if not is_different(found, read_tree(text, agent="sterna", wants=EVERYTHING), EVERYTHING):
        return "as the tree"
    if is_different(found, _whole(text), EVERYTHING):
        raise Unsound(f"neither tree says so: {text[:200]!r}")
    return "as the tree of the page with its silent tags"


def _whole(text: str) -> Findings:
    page = CloseReading("sterna")
    walk(parse(text).root, page)
    page.finish(EVERYTHING)
    return page


def compile_sanitized(folder: Path) -> Path:
    """The reader as a program that ends at the first byte that it must not touch."""
    (folder / "references.h").write_text(build.references())
    program = folder / "sanitized"
    sources = map(str, (MAIN, *build.sources_of(build.HERE)))
    includes = ("-I", str(folder), "-I", str(build.HERE))
    subprocess.run(["cc", *FLAGS, *includes, "-o", str(program), *sources], check=True)
    return program


class _Sanitized:
    """The program, which has a page after the other; closed if it found something."""

    def __init__(self, program: Path) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() does it
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def read(self, page: bytes) -> int:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(len(page).to_bytes(4, "little") + page)
            self._process.stdin.flush()
            answer = self._process.stdout.read(4)
        except BrokenPipeError:
            answer = b""
        if len(answer) < 4:
            self._errors.seek(0)
            lines = map(str.strip, self._errors.read().decode(errors="replace").splitlines())
            raise Unsound(" ".join(line for line in lines if "error" in line.lower())[:300])
        return int.from_bytes(answer, "little", signed=True)

    def close(self) -> None:
        with self._errors, self._process:
            self._process.kill()
