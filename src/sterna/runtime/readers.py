"""Responses read in jailed processes: a body goes in as it was received, and a document comes back."""

import math
from collections.abc import Callable

from sterna.errors import ReadError
from sterna.runtime.cell.channel import Starter
from sterna.runtime.cell.frame import framed, message_decoder
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.workers import Manner, TaskFailed, Workers
from sterna.runtime.reader import MAX_OUTCOME_BYTES, MAX_TASK_BYTES, Outcome
from sterna.web.document import MAX_DOCUMENT_BYTES, Document, Fetched

ENTRY = "sterna.runtime.reader:serve"
# No limit of CPU time: a reader reads as many pages as come, and each page has a deadline.
LIMITS = JailLimits(memory_bytes=2 * 1024**3, cpu_seconds=math.inf)
READ_SECONDS = 60.0

read_outcome: Callable[[bytes], Outcome] = message_decoder(Outcome)


class Readers(Workers[Outcome]):
    """Reads responses in processes of its own, which start with start() or the first response."""

    def __init__(
        self,
        count: int,
        *,
        is_jailed: bool | None = None,
        entry: str = ENTRY,
        starter: Starter | None = None,
        limits: JailLimits = LIMITS,
        seconds: float = READ_SECONDS,
    ) -> None:
        manner = Manner(
            entry=entry, limits=limits, seconds=seconds, most_bytes=MAX_OUTCOME_BYTES, is_jailed=is_jailed
        )
        super().__init__(count, manner, decode=read_outcome, starter=starter)

    async def read(self, fetched: Fetched) -> Document:
        """The document of a response; ReadError if it is unreadable, JailError if no reader can start."""
        try:
            frame = framed(fetched, most_bytes=MAX_TASK_BYTES)
        except ValueError as error:
            raise ReadError("too_large", str(error)) from error
        del fetched  # its body may be large
        try:
            outcome = await self.answer(frame)
        except TaskFailed as error:
            raise ReadError("parser", str(error)) from error
        return document_of(outcome)


class HeavyDocument(ReadError):
    """The document takes more memory than its task allows, but not more than any may."""

    def __init__(self, detail: str, weight: int) -> None:
        super().__init__("too_large", detail)
        self.weight = weight


def document_of(outcome: Outcome) -> Document:
    """The document; ReadError if there is none."""
    if outcome.document is None:
        if 0 < outcome.weight <= MAX_DOCUMENT_BYTES:
            raise HeavyDocument(outcome.detail, outcome.weight)
        raise ReadError(outcome.kind, outcome.detail)
    return outcome.document
