"""The folder of keys: who a home and a host are, and how their keys came from earlier ones."""

import os
from pathlib import Path
from typing import Literal

from sterna.errors import KeyFileError, WireError
from sterna.wire.keys import MAX_SUCCESSIONS, Identity, Succession, read_identity, write_identity

Who = Literal["home", "host"]


class Keyring:
    """A folder that only its owner reads; it is made when the first key is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, who: Who) -> Path:
        """The file of a secret key."""
        return self.folder / f"{who}.key"

    def read(self, who: Who) -> Identity:
        """The identity; KeyFileError if there is none."""
        return read_identity(self.path(who))

    def read_or_make(self, who: Who) -> Identity:
        """The identity, made if there is none."""
        return self.read(who) if self.path(who).exists() else self.make(who)

    def make(self, who: Who) -> Identity:
        """A new identity; KeyFileError if there is one."""
        identity = Identity.new()
        self._make_folder()
        write_identity(self.path(who), identity)
        return identity

    def replace(self, who: Who) -> Identity:
        """A new identity in place of the old one, which signs it, so that others may follow."""
        old, new = self.read(who), Identity.new()
        beside = self.path(who).with_suffix(".new")
        beside.unlink(missing_ok=True)
        write_identity(beside, new)
        # What an interrupted call left behind would lead those who follow the chain astray.
        chain = [each for each in self.successions(who) if each.old != old.public]
        chain.append(Succession.sign(old, new.public))
        self._write_chain(who, chain[-MAX_SUCCESSIONS:])
        beside.replace(self.path(who))
        return new

    def successions(self, who: Who) -> tuple[Succession, ...]:
        """How the key came from earlier ones, the first of them first."""
        path = self._chain_path(who)
        try:
            return tuple(Succession.parse(line) for line in path.read_text().splitlines())
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError, WireError) as error:
            raise KeyFileError(f"{path} cannot be read: {error}") from error

    def _chain_path(self, who: Who) -> Path:
        return self.folder / f"{who}.successions"

    def _write_chain(self, who: Who, chain: list[Succession]) -> None:
        path = self._chain_path(who)
        write_private(path, "".join(f"{each.text}\n" for each in chain))

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise KeyFileError(f"the folder {self.folder} cannot be made: {error.strerror}") from error


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, whole or not at all."""
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
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from error
