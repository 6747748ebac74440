"""The process that reads hostile bodies: answers in, documents out, until its input ends.

A body that makes the parser crash or grow without bound ends this process and not the crawl.
"""

import gc
import resource
import signal
import sys
import time
from typing import BinaryIO

import msgspec

from sterna.errors import ReadError
from sterna.model import Record
from sterna.runtime.memory import give_back_memory
from sterna.runtime.sieve import sift_document
from sterna.web.document import Answer, Document, read_document

MAX_MEMORY_BYTES = 2 * 1024**3
GARBAGE_OBJECTS = 100_000
LARGE_BYTES = 1024 * 1024  # of a body whose tree leaves a lot of memory behind


class Task(Record, frozen=True):
    """An answer, what is known of its URL, and how its document is sifted."""

    answer: Answer
    depth: int = 0
    referrer: str = ""
    sift: bytes = b""


class Outcome(Record, frozen=True):
    """A document, or the kind and the words of what went wrong."""

    document: Document | None = None
    kind: str = ""
    detail: str = ""


def read(body: bytes) -> Outcome:
    """The outcome for one encoded task."""
    try:
        return Outcome(_read(msgspec.msgpack.decode(body, type=Task)))
    except ReadError as error:
        return Outcome(kind=error.kind, detail=str(error))
    except MemoryError:
        return Outcome(kind="parser", detail="out of memory")
    # Whatever a parser raises on hostile bytes is that page's error; the next page is read all the same.
    except Exception as error:
        return Outcome(kind="parser", detail=f"{type(error).__name__}: {error}")


def _read(task: Task) -> Document:
    began = time.process_time()
    document = read_document(task.answer)
    if task.sift:
        document = sift_document(
            document, task.answer, depth=task.depth, referrer=task.referrer, sift=task.sift
        )
    return msgspec.structs.replace(document, cpu_seconds=time.process_time() - began)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers tasks (four bytes of length, then msgpack) in their order."""
    encoder = msgspec.msgpack.Encoder()
    while len(head := source.read(4)) == 4:
        size = int.from_bytes(head, "big")
        encoded = encoder.encode(read(source.read(size)))
        sink.write(len(encoded).to_bytes(4, "big"))
        sink.write(encoded)
        sink.flush()
        if size > LARGE_BYTES:
            del encoded
            give_back_memory()


def main() -> None:
    """Runs until the parent closes the pipe; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)  # a page makes thousands of objects and no cycles
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
