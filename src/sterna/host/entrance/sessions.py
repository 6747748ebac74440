"""Sessions and nonces as files: the same for a host that stays and for one process a request.

A file that can be created once has one winner, whoever races for it; so tickets and nonces are files too.
"""

import hmac
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sterna.errors import Refused, StorageError
from sterna.model import Budget, Record

TICKET_SECONDS = 60.0
NONCE_SECONDS = 300.0  # longer than any clock may be off, both ways
KEPT_SECONDS = 6 * 3600.0  # after it was used last
SWEEP_SECONDS = 30.0
MAX_SESSIONS = 4_096
MAX_NONCES = 8_192
MAX_NONCES_OF_A_HOME = 1_024  # so that one home cannot shut the others out
ID_BYTES = 16
_SPENT = ".spent"


class Session(Record, frozen=True):
    """What two requests of one home have in common."""

    id: bytes
    home: str  # its key as text
    keys: bytes  # as `wire.handshake` writes them
    ticket: bytes
    grants: Budget
    opened: float
    understands: tuple[str, ...] = ()  # words for what this home can read
    priority: int = 0  # for which this is granted


class Sessions:
    """The files of a host's sessions; times are those of the files, so that all processes agree on them."""

    def __init__(self, folder: Path) -> None:
        self._sessions = folder / "sessions"
        self._nonces = folder / "nonces"
        self._swept = folder / "swept"
        try:
            for each in (folder, self._sessions, self._nonces):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{error.filename} cannot hold a host's state: {error.strerror}") from error

    def note(self, home: str, nonce: bytes) -> None:
        """Refused if this home has used the nonce before."""
        self._sweep()
        names = [path.name for path in self._nonces.iterdir()]
        if len(names) >= MAX_NONCES or sum(name.startswith(home) for name in names) >= MAX_NONCES_OF_A_HOME:
            raise Refused("busy", "too many greetings", retry_after=SWEEP_SECONDS)
        try:
            _create(self._nonces / f"{home}-{nonce.hex()}", b"")
        except FileExistsError:
            raise Refused("replayed", "this request was here before") from None

    def open(self, session: Session) -> None:
        """Keeps a session until its ticket expires, or as long as it is used."""
        self._sweep()
        self._make_room()
        _create(self._path(session.id), _ENCODER.encode(session))

    def find(self, id: bytes) -> Session:
        """The session; Refused if there is none."""
        if len(id) != ID_BYTES:
            raise Refused("malformed", "there is no session id")
        try:
            return _DECODER.decode(self._path(id).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            raise Refused("ticket-expired", "there is no such session: greet the host again") from None

    def claim(self, session: Session, ticket: bytes, *, now: float) -> None:
        """Spends the session's ticket; Refused for everyone but the first."""
        if not hmac.compare_digest(ticket, session.ticket):
            raise Refused("malformed", "the ticket is not that of the session")
        if abs(now - session.opened) > TICKET_SECONDS:
            raise Refused("ticket-expired", f"a ticket is good for {TICKET_SECONDS:g} seconds")
        try:
            _create(self._path(session.id).with_suffix(_SPENT), b"")
        except FileExistsError:
            raise Refused("ticket-spent", "a ticket is good for one order") from None

    def use(self, session: Session) -> None:
        """Lets a session live on: it was used."""
        for path in (self._path(session.id), self._path(session.id).with_suffix(_SPENT)):
            try:
                os.utime(path)
            except FileNotFoundError:
                return

    def _path(self, id: bytes) -> Path:
        return self._sessions / id.hex()

    def close(self, session: Session) -> None:
        """Forgets a session of which nothing more can come."""
        self._path(session.id).unlink(missing_ok=True)
        self._path(session.id).with_suffix(_SPENT).unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Forgets those that were used longest ago, if there are too many; Refused if none was used yet."""
        files = list(self._sessions.iterdir())
        spent = [path for path in files if path.suffix == _SPENT]
        if len(files) - len(spent) < MAX_SESSIONS:
            return
        if not spent:
            raise Refused("busy", "too many sessions are open", retry_after=SWEEP_SECONDS)
        for path in sorted(spent, key=_changed)[: max(MAX_SESSIONS // 8, 1)]:
            path.with_suffix("").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    # -- sweeping ------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Deletes what is over; at most once in a while, whichever process comes first."""
        now = time.time()
        if now - _changed(self._swept) < SWEEP_SECONDS:
            return
        try:
            self._swept.touch(mode=0o600)
        except OSError as error:
            raise StorageError(f"{self._swept} cannot be written: {error.strerror}") from error
        for path in self._over(now):
            path.unlink(missing_ok=True)

    def _over(self, now: float) -> Iterator[Path]:
        for path in self._nonces.iterdir():
            if now - _changed(path) > NONCE_SECONDS:
                yield path
        for path in self._sessions.iterdir():
            is_spent = path.suffix == _SPENT or path.with_suffix(_SPENT).exists()
            if now - _changed(path) > (KEPT_SECONDS if is_spent else 2 * TICKET_SECONDS):
                yield path


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Session)


def _create(path: Path, content: bytes) -> None:
    """Makes a file that only we read; FileExistsError if there is one, StorageError if there can be none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise StorageError(f"{path.parent} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"{path.parent} cannot be written: {error.strerror}") from error


def _changed(path: Path) -> float:
    """When the file was changed last; long ago if there is none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
