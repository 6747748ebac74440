"""What runs in a reader's cell: server responses in, documents out, until the host closes the line.

A body that makes the parser crash or grow without bound ends this process and not the crawl.
"""

import socket
import time
from collections.abc import Callable

import msgspec

from sterna.errors import ReadError
from sterna.model import Record
from sterna.runtime.cell.frame import CellLine, message_decoder
from sterna.runtime.cell.kernel import give_back_memory
from sterna.runtime.sieve import sift_document
from sterna.web.charset import load_encodings
from sterna.web.document import MAX_DOCUMENT_BYTES, Document, Fetched, read_document, weight_of_document
from sterna.web.html import ReadPage
from sterna.web.http import MAX_BODY_BYTES
from sterna.web.keywords import stop_words
from sterna.web.native.judge import JudgedReader
from sterna.web.native.reader import load, why_not
from sterna.web.walk import read_tree

MAX_TASK_BYTES = MAX_BODY_BYTES + 4 * 1024**2  # a body, and how it is to be read
MAX_OUTCOME_BYTES = MAX_DOCUMENT_BYTES
LARGE_BYTES = 1024 * 1024  # of a body whose tree leaves a lot of memory behind


class Outcome(Record, frozen=True):
    """A document, or the kind and the words of what went wrong, or what too large a one weighs."""

    document: Document | None = None
    kind: str = ""
    detail: str = ""
    weight: int = 0


_read_task: Callable[[bytes], Fetched] = message_decoder(Fetched)
_read_page: ReadPage = read_tree  # set by prepare()


def warm() -> None:
    """Loads what reading needs: a jailed cell can open no file."""
    stop_words()
    load_encodings()
    load()


def prepare(is_jailed: bool) -> None:
    """Has pages read in C, if that is compiled, in a jail alone: it is C that reads strangers' bytes."""
    global _read_page  # noqa: PLW0603 - it is a state of the process
    if is_jailed and not why_not():
        _read_page = JudgedReader()


def serve(sock: socket.socket) -> None:
    line = CellLine(sock, _read_task, most_in=MAX_TASK_BYTES, most_out=MAX_OUTCOME_BYTES)
    while True:
        try:
            task = line.receive()
        except (EOFError, ConnectionError):
            return
        _send(line, read(task))
        if len(task.body) > LARGE_BYTES:
            del task
            give_back_memory()


def _send(line: CellLine[Fetched], outcome: Outcome) -> None:
    try:
        line.send(outcome)
    except ValueError as error:  # nothing was sent yet
        line.send(Outcome(kind="too_large", detail=f"the document: {error}"))


def read(task: Fetched) -> Outcome:
    try:
        began = time.process_time()
        document = read_document(task, _read_page)
        if task.sift:
            document = sift_document(document, task)
        weight = weight_of_document(document)
        if weight > min(task.most_bytes, MAX_DOCUMENT_BYTES):
            detail = f"the document takes {weight:,} bytes of memory"
            is_read_again = weight <= MAX_DOCUMENT_BYTES
            return Outcome(kind="too_large", detail=detail, weight=weight if is_read_again else 0)
        return Outcome(msgspec.structs.replace(document, cpu_seconds=time.process_time() - began))
    except ReadError as error:
        return Outcome(kind=error.kind, detail=str(error))
    except MemoryError:
        return Outcome(kind="parser", detail="out of memory")
    # Whatever a parser raises on hostile bytes is an error of that page; the next page is read all the same.
    except Exception as error:
        return Outcome(kind="parser", detail=f"{type(error).__name__}: {error}")
