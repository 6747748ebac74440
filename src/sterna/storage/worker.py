"""A thread for each database: what one of them does not answer holds up no other."""

import threading
import time
from collections.abc import Callable, Sequence

from sterna.archive.manifest import Snapshot
from sterna.errors import QueryError, SternaError
from sterna.storage.backoff import delay
from sterna.storage.connections import Database
from sterna.storage.faults import Fault, Kind, fault_of
from sterna.storage.position import Moved
from sterna.storage.sink import Stopped, Strand
from sterna.storage.status import Board, Standing

LOOK_SECONDS = 0.5
HANGS_SECONDS = 20.0  # without a sign of life
_FRESH_SECONDS = 20.0  # a snapshot's files may be gone after two minutes


class _Rest:
    """Until when something is left alone after a failure."""

    def __init__(self) -> None:
        self.until = 0.0
        self._failures = 0

    def fail(self) -> None:
        self._failures += 1
        self.until = time.time() + delay(self._failures)

    def succeed(self) -> None:
        self.until, self._failures = 0.0, 0


class Worker:
    """Lets the rules of one database take turns, until it is closed."""

    def __init__(
        self,
        database: Database,
        strands: Sequence[Strand],
        *,
        take: Callable[[], Snapshot],
        board: Board,
        warn: Callable[[str], None],
    ) -> None:
        self.database = database
        self.strands = strands
        self._take = take
        self._board = board
        self._warn = warn
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"storage-{database.name}", daemon=True)
        # All of these are changed by its own thread.
        self.settled = -1  # the last batch with which nothing was left to do but to wait
        self.beat = time.monotonic()
        self._rests = {strand.name: _Rest() for strand in strands}
        self._rest = _Rest()  # of the database
        self._snapshot: tuple[float, Snapshot] | None = None

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def close(self) -> None:
        """Asks it to end: what is not committed is left for another time."""
        self._closing.set()

    def is_alive(self) -> bool:
        """True until it has ended."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Waits for its end; a database that hangs is left alone."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self.database.close()

    def is_settled(self, batch: int) -> bool:
        """True if nothing is left to do for this batch, or nothing can be done now."""
        hangs = time.monotonic() - self.beat > HANGS_SECONDS
        return self.settled >= batch or hangs or not self.is_alive()

    def batch(self) -> int | None:
        """How far its rules have come, those in trouble left aside; None if there is no other."""
        reached = [strand.position.batch for strand in self.strands if not self._is_resting(strand)]
        return min(reached, default=None)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.beat = time.monotonic()
                if not self._turn():
                    self._closing.wait(LOOK_SECONDS)
        except Exception as error:
            self._warn(f"storage: connection {self.database.name!r} ended: {type(error).__name__}: {error}")
            raise

    def _turn(self) -> bool:
        """One transaction of each rule; True if something moved."""
        try:
            snapshot = self._fresh()
        except SternaError as error:  # the ledger is just being made, or the disk refuses
            self._warn(f"storage: {error}")
            return False
        moved = [self._step(strand, snapshot) for strand in self.strands if not self._is_resting(strand)]
        if not any(moved):
            self.settled = snapshot.batch
            self._snapshot = None
        return any(moved)

    def _fresh(self) -> Snapshot:
        """A snapshot that is not too old; while there is work the same one serves for a while."""
        now = time.monotonic()
        if self._snapshot is None or now - self._snapshot[0] > _FRESH_SECONDS:
            self._snapshot = (now, self._take())
        return self._snapshot[1]

    def _step(self, strand: Strand, snapshot: Snapshot) -> bool:
        if self._closing.is_set():
            return False
        try:
            is_retried = strand.retry(stop=self._closing)
            moved = strand.advance(snapshot, stop=self._closing) or is_retried
        except Moved:
            strand.look_again()
            return True
        except Stopped:
            return False
        except SternaError as error:
            strand.look_again()
            if isinstance(error, QueryError) and _is_gone(snapshot):
                self._snapshot = None
                return True
            self._note_trouble(strand, snapshot, fault_of(error))
            return False
        self._rest.succeed()
        self._rests[strand.name].succeed()
        self._note(strand, snapshot)
        self.beat = time.monotonic()
        return moved

    def _is_resting(self, strand: Strand) -> bool:
        return max(self._rest.until, self._rests[strand.name].until) > time.time()

    def _note_trouble(self, strand: Strand, snapshot: Snapshot, fault: Fault) -> None:
        is_down = fault.kind is Kind.DOWN
        rest = self._rest if is_down else self._rests[strand.name]
        rest.fail()
        for each in self.strands if is_down else [strand]:
            state = Kind.DOWN if is_down else Kind.BROKEN
            is_news = self._note(each, snapshot, state=state, error=str(fault), next_try=rest.until)
            if is_news and each is strand:
                self._warn(_warning(strand, fault))

    def _note(
        self, strand: Strand, snapshot: Snapshot, *, state: str = "ok", error: str = "", next_try: float = 0.0
    ) -> bool:
        position = strand.position
        return self._board.note(
            Standing(
                rule=strand.name,
                connection=self.database.name,
                state=state,
                batch=position.batch,
                of=snapshot.batch,
                stored=position.stored,
                waiting=strand.waiting.count,
                error=error,
                since=time.time() if error else 0.0,
                next_try=next_try,
            )
        )


def _is_gone(snapshot: Snapshot) -> bool:
    """True if files were merged into others since: a new snapshot has these."""
    return not all(path.exists() for paths in snapshot.tables.values() for path in paths)


def _warning(strand: Strand, fault: Fault) -> str:
    if fault.kind is Kind.DOWN:
        return f"storage: connection {strand.database.name!r}: {fault}"
    return f"storage: rule {strand.name!r}: {fault}"
