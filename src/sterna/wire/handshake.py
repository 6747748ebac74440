"""The handshake, one round trip: home identifies itself and its request, the host answers with a ticket.

Both sign; no signature is valid in another exchange. The host signs the whole exchange, and the keys of the
session are derived from two ephemeral X25519 keys and the whole exchange.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from sterna.errors import WireError
from sterna.model import Budget, Record
from sterna.wire.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, PublicKey
from sterna.wire.problems import malformed

VERSION = 1
SUITE = "x25519-ed25519-xchacha20poly1305-blake2b"
SESSION_BYTES = 16
TICKET_BYTES = 32
NONCE_BYTES = 16
_SEAL_NONCE_BYTES: int = sodium.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_SEAL_BYTES: int = _SEAL_NONCE_BYTES + sodium.crypto_aead_xchacha20poly1305_ietf_ABYTES
TICKET_SECONDS = 60
MAX_HELLO_BYTES = 8 * 1024
MAX_WELCOME_BYTES = 64 * 1024
MAX_PATHS, MAX_PATH = 100, 500  # closed paths that a reply 1 names, and bytes of each
MAX_NUMBER = 2**63 - 1
MAX_PRIORITY = 10  # of a site among the revisits that a home promises

Random = Callable[[int], bytes]  # that many unpredictable bytes

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
SessionId = Annotated[bytes, Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]
Ticket = Annotated[bytes, Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]
Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
# One printable line: the name appears in the host's log and lists.
_SHOWN = r"\A[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z"
Line = Annotated[str, Meta(min_length=1, max_length=100, pattern=_SHOWN)]
Word = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[A-Za-z0-9._/+-]*\Z")]
Words = Annotated[tuple[Word, ...], Meta(max_length=32)]
Site = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"\A[!-~]*\Z")]
Platform = Annotated[dict[Word, Annotated[str, Meta(max_length=200)]], Meta(max_length=32)]
Priority = Annotated[int, Meta(ge=0, le=MAX_PRIORITY)]
# Prefixes, as in robots.txt.
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH, pattern=r"\A/")]
Paths = Annotated[tuple[Path, ...], Meta(max_length=MAX_PATHS)]


class Hello(Record, frozen=True, kw_only=True):
    """Request 1: the home, the site, and the budget it asks for."""

    version: int = VERSION
    suites: Words = (SUITE,)
    home: Line
    key: Key
    audience: Site
    ephemeral: Key
    nonce: Nonce
    time: float
    wants: Budget = Budget()
    understands: Words = ()
    priority: Priority = 0  # offered: the higher, the sooner home visits the site again


class Welcome(Record, frozen=True, kw_only=True):
    """Reply 1: a ticket for one order, and the budget that the host grants."""

    suite: Word
    ticket: Ticket
    # For which the ticket is valid, from the request on.
    seconds: Annotated[int, Meta(ge=1, le=3600)] = TICKET_SECONDS
    grants: Budget = Budget()
    platform: Platform = msgspec.field(default_factory=dict)
    priority: Priority = 0  # on which the grant depends: home then owes it to the site
    closed: Paths = ()  # to this home, which does not fetch them from outside either


class SessionKeys(Record, frozen=True):
    """The keys of one session, each for one purpose and one direction."""

    session: SessionId
    order: Key  # home to host
    stream: Key  # host to home
    acknowledge: Key  # home to host
    report: Key  # host to home

    def __repr__(self) -> str:
        return f"SessionKeys({self.session.hex()})"  # keys must not get into logs

    def encode(self) -> bytes:
        """The keys as bytes, for a file that only its owner can read."""
        return b"".join((self.session, self.order, self.stream, self.acknowledge, self.report))

    @classmethod
    def decode(cls, data: bytes) -> "SessionKeys":
        """The keys in these bytes; WireError if the length is wrong."""
        size = SESSION_BYTES + 4 * KEY_BYTES
        if len(data) != size:
            raise WireError("malformed", f"the keys of a session have {size} bytes, not {len(data)}")
        starts = range(SESSION_BYTES, len(data), KEY_BYTES)
        return cls(data[:SESSION_BYTES], *(data[start : start + KEY_BYTES] for start in starts))


class Session(Welcome, frozen=True, kw_only=True):
    """What home has after the handshake."""

    keys: SessionKeys

    def __repr__(self) -> str:
        return f"Session({self.keys!r})"  # nor must the ticket


@dataclass(frozen=True, slots=True)
class HelloRead:
    """A request 1 with a valid signature, and the digest of its bytes."""

    hello: Hello
    transcript: bytes

    @property
    def key(self) -> PublicKey:
        return PublicKey(self.hello.key)


class Versioned(Record, frozen=True):
    """The beginning of a message, which no later version may change."""

    version: int


class _Signed(Record, frozen=True):
    payload: bytes
    signature: Signature


class _Reply(Record, frozen=True):
    session: SessionId
    ephemeral: Key
    sealed: bytes


_SIGNED = msgspec.msgpack.Decoder(_Signed)
_VERSION = msgspec.msgpack.Decoder(Versioned)
_HELLO = msgspec.msgpack.Decoder(Hello)
_REPLY = msgspec.msgpack.Decoder(_Reply)
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_encode = msgspec.msgpack.Encoder().encode


# --- home


@dataclass(frozen=True, slots=True)
class Greeting:
    """Home's side of one handshake: the request 1, and the secret that opens the reply."""

    body: bytes
    ephemeral: bytes = field(repr=False)  # secret
    priority: int = 0

    @classmethod
    def begin(
        cls,
        identity: Identity,
        *,
        home: str,
        audience: str,
        wants: Budget,
        now: float,
        understands: tuple[str, ...] = (),
        priority: int = 0,
        random: Random = os.urandom,
    ) -> "Greeting":
        secret = random(KEY_BYTES)
        hello = Hello(
            home=home,
            key=identity.public.data,
            audience=audience,
            ephemeral=sodium.crypto_scalarmult_base(secret),
            nonce=random(NONCE_BYTES),
            time=now,
            wants=wants,
            understands=understands,
            priority=priority,
        )
        payload = _encode(hello)
        body = _encode(_Signed(payload, identity.sign("hello", payload)))
        return cls(body, secret, priority)

    def finish(self, reply: bytes, host_key: PublicKey) -> Session:
        """The session that the host opened; WireError unless that key signed this exchange."""
        if len(reply) > MAX_WELCOME_BYTES:
            raise WireError("too-large", f"a reply 1 has at most {MAX_WELCOME_BYTES} bytes")
        with malformed("reply 1"):
            outer = _REPLY.decode(reply)
            transcript = _with_reply(_of_hello(self.body), outer.session, outer.ephemeral)
            shared = _shared(self.ephemeral, outer.ephemeral)
            plain = unseal(_derive(shared, "welcome", transcript), outer.sealed, bound=transcript)
            signed = _SIGNED.decode(plain)
            host_key.verify("welcome", transcript + signed.payload, signed.signature)
            welcome = _WELCOME.decode(signed.payload)
        if welcome.suite != SUITE:
            raise WireError("version", f"the host chose the suite {welcome.suite}, which was not offered")
        if welcome.priority > self.priority:
            demand = f"the host demands priority {welcome.priority}, home offered {self.priority}"
            raise WireError("malformed", demand)
        check_budget(welcome.grants)
        keys = _session_keys(outer.session, shared, transcript)
        return Session(**msgspec.structs.asdict(welcome), keys=keys)


# --- host


def read_hello(body: bytes) -> HelloRead:
    """The request 1 in these bytes, its signature verified; the host's policy is checked elsewhere."""
    if len(body) > MAX_HELLO_BYTES:
        raise WireError("too-large", f"a request 1 has at most {MAX_HELLO_BYTES} bytes")
    with malformed("request 1"):
        signed = _SIGNED.decode(body)
        version = _VERSION.decode(signed.payload).version
        if version != VERSION:
            raise WireError("version", f"this host speaks version {VERSION}, not {str(version)[:20]}")
        hello = _HELLO.decode(signed.payload)
    PublicKey(hello.key).verify("hello", signed.payload, signed.signature)
    if SUITE not in hello.suites:
        raise WireError("version", f"this host has the suite {SUITE}, which was not offered")
    if not math.isfinite(hello.time):
        raise WireError("malformed", "the time in request 1 is not a finite number")
    check_budget(hello.wants)
    return HelloRead(hello, _of_hello(body))


def welcome(  # noqa: PLR0913 - all of it goes into the reply
    read: HelloRead,
    identity: Identity,
    *,
    grants: Budget,
    platform: dict[str, str],
    ticket: bytes,
    session: bytes,
    seconds: int = TICKET_SECONDS,
    priority: int = 0,
    closed: tuple[str, ...] = (),
    random: Random = os.urandom,
) -> tuple[bytes, SessionKeys]:
    """The reply 1, and the keys of the session that it opens."""
    assert len(closed) <= MAX_PATHS  # home refuses more
    secret = random(KEY_BYTES)
    ephemeral = sodium.crypto_scalarmult_base(secret)
    transcript = _with_reply(read.transcript, session, ephemeral)
    shared = _shared(secret, read.hello.ephemeral)
    payload = _encode(
        Welcome(
            suite=SUITE,
            ticket=ticket,
            seconds=seconds,
            grants=grants,
            platform=platform,
            priority=priority,
            closed=closed,
        )
    )
    signed = _encode(_Signed(payload, identity.sign("welcome", transcript + payload)))
    sealed = seal(_derive(shared, "welcome", transcript), signed, bound=transcript, random=random)
    return _encode(_Reply(session, ephemeral, sealed)), _session_keys(session, shared, transcript)


# --- both


def check_budget(budget: Budget) -> None:
    """WireError unless each number is from 0 to MAX_NUMBER."""
    for name, number in msgspec.structs.asdict(budget).items():
        if not 0 <= number <= MAX_NUMBER:  # False for NaN, too
            raise WireError("malformed", f"{name} of a budget is out of range: {str(number)[:30]}")


def seal(key: bytes, plaintext: bytes, *, bound: bytes, random: Random = os.urandom) -> bytes:
    """Nonce and XChaCha20-Poly1305 ciphertext; `bound` is not sent, but must be the same to unseal it."""
    nonce = random(_SEAL_NONCE_BYTES)
    return nonce + sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, bound, nonce, key)


def unseal(key: bytes, sealed: bytes, *, bound: bytes) -> bytes:
    """The plaintext; WireError if one bit of it, of the key or of `bound` differs."""
    if len(sealed) < _SEAL_BYTES:
        raise WireError("malformed", f"a sealed message has at least {_SEAL_BYTES} bytes, not {len(sealed)}")
    nonce, ciphertext = sealed[:_SEAL_NONCE_BYTES], sealed[_SEAL_NONCE_BYTES:]
    try:
        return sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, bound, nonce, key)
    except CryptoError as error:
        raise WireError(
            "bad-signature", "the message was not sealed under the key of this session"
        ) from error


def _of_hello(body: bytes) -> bytes:
    return blake2b(body, digest_size=32, person=b"sterna 1 hello").digest()


def _with_reply(transcript: bytes, session: bytes, ephemeral: bytes) -> bytes:
    return blake2b(transcript + session + ephemeral, digest_size=32, person=b"sterna 1 reply").digest()


def _shared(secret: bytes, public: bytes) -> bytes:
    try:
        return sodium.crypto_scalarmult(secret, public)
    except CryptoError as error:  # a point of low order gives the same result, zero, with every secret
        raise WireError("malformed", "the ephemeral key is a point of low order") from error


def _derive(shared: bytes, label: str, transcript: bytes) -> bytes:
    data = b"sterna 1 " + label.encode() + b"\0" + transcript
    return blake2b(data, digest_size=KEY_BYTES, key=shared).digest()


def _session_keys(session: bytes, shared: bytes, transcript: bytes) -> SessionKeys:
    labels = ("order", "stream", "acknowledge", "report")
    return SessionKeys(session, *(_derive(shared, label, transcript) for label in labels))
