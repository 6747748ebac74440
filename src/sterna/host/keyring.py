"""The folder of keys: the identities of home and host, their earlier keys, and homes allowed and revoked."""

import logging
import os
from pathlib import Path
from typing import Literal

from sterna.errors import KeyFileError, UsageError, WireError
from sterna.model import Record
from sterna.wire.keys import MAX_SUCCESSIONS, Identity, PublicKey, Succession, read_identity, write_identity

ALLOWED = "allowed"  # the list of homes in the folder of keys
REVOKED = "revoked"  # the list of those that come no more
KEPT = "kept"  # after the key of a revoked home: its parcels stay
MAX_NAME = 64  # characters of a home's name

Who = Literal["home", "host"]

_log = logging.getLogger(__name__)


class Keyring:
    """A folder that only its owner can read; created with the first key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, who: Who) -> Path:
        return self.folder / f"{who}.key"

    def read(self, who: Who) -> Identity:
        """The identity; KeyFileError if there is none."""
        return read_identity(self.path(who))

    def read_or_make(self, who: Who) -> Identity:
        return self.read(who) if self.path(who).exists() else self.make(who)

    def make(self, who: Who) -> Identity:
        """A new identity; KeyFileError if there is one."""
        identity = Identity.new()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise KeyFileError(f"cannot create folder {self.folder}: {error.strerror}") from error
        write_identity(self.path(who), identity)
        return identity

    def replace(self, who: Who) -> Identity:
        """A new identity in place of the old one, which signs it, so that others can verify the change."""
        old, new = self.read(who), Identity.new()
        beside = self.path(who).with_suffix(".new")
        beside.unlink(missing_ok=True)
        write_identity(beside, new)
        # An interrupted call may have left an entry that breaks the chain.
        chain = [each for each in self.successions(who) if each.old != old.public]
        chain.append(Succession.sign(old, new.public))
        lines = (f"{each.text}\n" for each in chain[-MAX_SUCCESSIONS:])
        _write_private(self._chain_path(who), "".join(lines))
        beside.replace(self.path(who))
        return new

    def successions(self, who: Who) -> tuple[Succession, ...]:
        """The signed changes of the key, oldest first."""
        path = self._chain_path(who)
        try:
            return tuple(Succession.parse(line) for line in path.read_text().splitlines())
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError, WireError) as error:
            raise KeyFileError(f"cannot read {path}: {error}") from error

    def _chain_path(self, who: Who) -> Path:
        return self.folder / f"{who}.successions"


def _write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, completely or not at all."""
    beside = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from error


# -- allowed homes -----------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """ValueError unless this is a valid name for a home: one printable word."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        raise ValueError(f"{name!r} is not a name for a home: one word of at most {MAX_NAME} characters")


def read_allowed(path: Path) -> dict[str, str]:
    """The names of the homes in a list, by key; a line that is not a key allows nobody."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from error
    names: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text, _, name = line.strip().partition(" ")
        if not text or text.startswith("#"):
            continue
        try:
            names[PublicKey.parse(text).text] = name.strip() or "unnamed"
        except WireError:
            _log.warning("%s:%d: not a key, ignored", path, number)
    return names


def allow(path: Path, key: PublicKey, name: str) -> None:
    """Adds a home to the list, or renames it; takes effect at once. ValueError if the name is invalid."""
    check_name(name)
    homes = read_allowed(path) | {key.text: name}
    _write_private(path, "".join(f"{text} {named}\n" for text, named in homes.items()))
    revoked = read_revoked(path.with_name(REVOKED))
    if revoked.pop(key.text, None):
        _write_revoked(path.with_name(REVOKED), revoked)


# -- revoked homes -----------------------------------------------------------------------------------------


class Revoked(Record, frozen=True):
    """A home that comes no more, even if the policy names its key or is open to everybody."""

    name: str
    keeps_parcels: bool = False  # until they expire, in case the home is allowed again


def revoke(folder: Path, name_or_key: str, *, keeps_parcels: bool = False) -> dict[str, str]:
    """Revokes the home with this key, or the homes of this name; their names by key.

    Takes effect at once. UsageError if no home of this name is allowed.
    """
    homes = read_allowed(folder / ALLOWED)
    try:
        key = PublicKey.parse(name_or_key).text
        found = {key: homes.get(key, "unnamed")}
    except WireError:
        found = {key: name for key, name in homes.items() if name == name_or_key}
    if not found:
        raise UsageError(
            f"no home is allowed as {name_or_key[:80]!r}: 'sterna keys list' shows who is; a home that"
            " only a policy.toml names is revoked by its key"
        )
    revoked = read_revoked(folder / REVOKED)
    revoked |= {key: Revoked(name, keeps_parcels) for key, name in found.items()}
    _write_revoked(folder / REVOKED, revoked)  # first: whatever happens next, they come no more
    left = {key: name for key, name in homes.items() if key not in found}
    _write_private(folder / ALLOWED, "".join(f"{text} {named}\n" for text, named in left.items()))
    return found


def read_revoked(path: Path) -> dict[str, Revoked]:
    """The revoked homes by key; KeyFileError if the list cannot be read, or a line of it is no key."""
    try:
        lines = path.read_text().splitlines()
        words = [line.split(" ") for line in lines if line]
        return {
            PublicKey.parse(key).text: Revoked(" ".join(name) or "unnamed", kept == KEPT)
            for key, kept, *name in words
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, WireError) as error:
        raise KeyFileError(f"cannot read {path}: {error}") from error


def _write_revoked(path: Path, revoked: dict[str, Revoked]) -> None:
    lines = (f"{key} {KEPT if each.keeps_parcels else '-'} {each.name}\n" for key, each in revoked.items())
    _write_private(path, "".join(lines))
