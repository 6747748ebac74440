"""Identities: the Ed25519 keys of homes and hosts, their files, and successions from one key to the next."""

import base64
import binascii
import os
import stat
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from sterna.errors import KeyFileError, WireError

KEY_BYTES = 32
SIGNATURE_BYTES = 64
DEFAULT_KEYS = "~/.config/sterna"  # the folder of keys of a home or a host
MAX_SUCCESSIONS = 16

_PREFIX = "ed25519:"
_SECRET_PREFIX = "sterna-secret-ed25519:"  # noqa: S105 - what such a file begins with
_MAX_FILE_BYTES = 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of an identity, 32 bytes."""

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != KEY_BYTES:
            raise WireError("malformed", f"a public key has {KEY_BYTES} bytes, not {len(self.data)}")

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """The key in this text; WireError if it is malformed."""
        if not text.startswith(_PREFIX):
            raise WireError("malformed", f"a public key is {_PREFIX} followed by 43 characters of base64url")
        return cls(_from_base64(text.removeprefix(_PREFIX)))

    @property
    def text(self) -> str:
        return _PREFIX + _base64(self.data)

    @property
    def id(self) -> str:
        """A short name for logs and lists; it proves nothing."""
        return blake2b(self.data, digest_size=32).hexdigest()[:16]

    def verify(self, context: str, data: bytes, signature: bytes) -> None:
        """WireError unless this key signed the data in this context."""
        if len(signature) != SIGNATURE_BYTES:
            raise WireError("bad-signature", f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
        try:
            VerifyKey(self.data).verify(_signed(context, data), signature)
        except CryptoError as error:
            raise WireError("bad-signature", f"the key {self.id} did not sign this {context}") from error


@dataclass(frozen=True, slots=True)
class Identity:
    """The secret half: its holder is that home or host."""

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES:
            raise ValueError(f"a secret key has {KEY_BYTES} bytes, not {len(self.seed)}")

    @classmethod
    def new(cls) -> "Identity":
        return cls(os.urandom(KEY_BYTES))

    @property
    def public(self) -> PublicKey:
        return PublicKey(bytes(SigningKey(self.seed).verify_key))

    def sign(self, context: str, data: bytes) -> bytes:
        """The signature, 64 bytes; invalid in any other context."""
        return SigningKey(self.seed).sign(_signed(context, data)).signature


@dataclass(frozen=True, slots=True)
class Succession:
    """A key that replaces another: the old one signed the new one."""

    old: PublicKey
    new: PublicKey
    signature: bytes

    @classmethod
    def sign(cls, old: Identity, new: PublicKey) -> "Succession":
        return cls(old.public, new, old.sign("succession", old.public.data + new.data))

    @classmethod
    def parse(cls, text: str) -> "Succession":
        """The succession in this text; its signature is not verified yet."""
        try:
            old, new, signed = text.split(" ")
        except ValueError as error:
            what = "two public keys and a signature, separated by spaces"
            raise WireError("malformed", f"a succession is {what}") from error
        signature = _from_base64(signed)
        if len(signature) != SIGNATURE_BYTES:
            raise WireError("malformed", f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
        return cls(PublicKey.parse(old), PublicKey.parse(new), signature)

    @property
    def text(self) -> str:
        return f"{self.old.text} {self.new.text} {_base64(self.signature)}"

    def verify(self) -> None:
        """WireError unless the old key signed the new one."""
        self.old.verify("succession", self.old.data + self.new.data, self.signature)


def follows(pinned: PublicKey, now: PublicKey, chain: tuple[Succession, ...]) -> bool:
    """True if it is the pinned key, or a chain of signed successions leads from that to it."""
    current = pinned
    for link in chain[:MAX_SUCCESSIONS]:
        if current == now:
            break
        if link.old != current:
            continue  # from before the pinned one, or of another branch
        try:
            link.verify()
        except WireError:
            return False
        current = link.new
    return current == now


# --- files


def write_identity(path: Path, identity: Identity) -> None:
    """Writes a new file with mode 0600; KeyFileError if it exists or the disk refuses."""
    try:
        # The mode is set on creation: at no moment can others open the file.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise KeyFileError(f"{path} exists: keys are never overwritten, move it away first") from error
    except OSError as error:
        raise KeyFileError(f"cannot write the key {path}: {error.strerror}") from error
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(f"{_SECRET_PREFIX}{_base64(identity.seed)}\n".encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"cannot write the key {path}: {error.strerror}") from error


def read_identity(path: Path) -> Identity:
    """The identity in a file; KeyFileError if it is missing, damaged, or readable by others."""
    try:
        # Without O_NONBLOCK opening a pipe of that name would block.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError(f"{path} is not a file: name the file that holds the key")
            if mode & _OTHERS:
                raise KeyFileError(
                    f"the key {path} has unsafe permissions (must be 0600): chmod 600 it, or make a new one"
                )
            data = os.read(file, _MAX_FILE_BYTES)
        finally:
            os.close(file)
    except FileNotFoundError as error:
        raise KeyFileError(f"there is no key {path}: make one with `sterna keys new`") from error
    except OSError as error:
        raise KeyFileError(f"cannot read the key {path}: {error.strerror}") from error
    line = data.decode("ascii", "replace").removesuffix("\n")
    try:
        if not line.startswith(_SECRET_PREFIX):
            raise WireError("malformed")
        return Identity(_from_base64(line.removeprefix(_SECRET_PREFIX)))
    except (WireError, ValueError) as error:
        raise KeyFileError(f"{path} is not a secret key of Sterna: damaged, or another file") from error


# --- spelling


def _signed(context: str, data: bytes) -> bytes:
    # A signature for one purpose must not be valid for another.
    if "\0" in context:
        raise ValueError("a context holds no NUL")
    return b"sterna 1 " + context.encode() + b"\0" + data


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error) as error:
        raise WireError("malformed", "not base64url") from error
    if _base64(data) != text:  # the decoder skips unknown characters, and padding has several spellings
        raise WireError("malformed", "not canonical base64url")
    return data
