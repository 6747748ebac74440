"""Identities sign for one purpose, are written in one way, and their files are read by their owner only."""

import base64
import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.parties import HOME, HOST, STRANGER, is_read, refusal

from sterna.errors import KeyFileError, WireError
from sterna.wire.keys import Identity, PublicKey, Succession, follows, read_identity, write_identity

# -- signatures


def test_what_was_signed_is_verified() -> None:
    HOME.public.verify("hello", b"data", HOME.sign("hello", b"data"))


def test_other_data_context_or_key_is_refused() -> None:
    signature = HOME.sign("hello", b"data")
    for key, context, data in (
        (HOME, "hello", b"Data"),
        (HOME, "welcome", b"data"),
        (HOST, "hello", b"data"),
    ):
        assert refusal(key.public.verify, context, data, signature) == "bad-signature"


def test_context_cannot_be_moved_into_the_data() -> None:
    signature = HOME.sign("a", b"b\0c")
    with pytest.raises(ValueError):
        HOME.public.verify("a\0b", b"c", signature)


def test_every_changed_bit_of_a_signature_is_seen() -> None:
    signature = HOME.sign("hello", b"data")
    for bit in range(8 * len(signature)):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert refusal(HOME.public.verify, "hello", b"data", bytes(changed)) == "bad-signature"


@settings(deadline=None)
@given(key=st.binary(min_size=32, max_size=32), signature=st.binary(max_size=80))
def test_any_bytes_as_key_and_signature_are_refused(key: bytes, signature: bytes) -> None:
    assert refusal(PublicKey(key).verify, "hello", b"data", signature) == "bad-signature"


def test_a_key_of_low_order_verifies_nothing() -> None:
    # With these points as keys a signature of zeros would be right for some messages.
    for point in (b"\1" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"):
        for number in range(20):
            data = bytes([number])
            assert refusal(PublicKey(point).verify, "x", data, point + bytes(32)) == "bad-signature"


# -- spelling


def test_a_key_is_read_back_from_its_text() -> None:
    text = HOME.public.text
    assert text.startswith("ed25519:") and len(text) == 8 + 43
    assert PublicKey.parse(text) == HOME.public


def test_id_is_short_and_tells_keys_apart() -> None:
    assert len(HOME.public.id) == 16
    assert len({identity.public.id for identity in (HOME, HOST, STRANGER)}) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        HOME.public.text[8:],
        HOME.public.text + "=",
        HOME.public.text + "A",
        HOME.public.text[:-1],
        HOME.public.text[:-1] + "9",  # the last letter has bits that stand for nothing
        HOME.public.text.replace("ed25519", "rsa"),
        HOME.public.text[:20] + " " + HOME.public.text[20:],
        "ed25519:" + base64.b64encode(b"\xff" * 32).decode().rstrip("="),
        "ed25519:" + "ä" * 43,
        "ed25519:" + "\ud800" * 43,
    ],
)
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    assert refusal(PublicKey.parse, text) == "malformed"


@settings(deadline=None)
@given(st.text(max_size=120))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    is_read(PublicKey.parse, text)
    is_read(PublicKey.parse, "ed25519:" + text)
    is_read(Succession.parse, text)


def test_secrets_are_not_shown() -> None:
    assert HOME.seed.hex() not in repr(HOME) and repr(HOME.seed) not in repr(HOME)


def test_new_identities_differ() -> None:
    assert Identity.new().public != Identity.new().public


# -- who follows whom


def link(old: Identity, new: Identity) -> Succession:
    return Succession.sign(old, new.public)


def test_a_key_follows_itself() -> None:
    assert follows(HOME.public, HOME.public, ())


def test_a_key_that_the_old_one_signed_follows_it() -> None:
    chain = (link(HOME, HOST), link(HOST, STRANGER))
    assert follows(HOME.public, HOST.public, chain)
    assert follows(HOME.public, STRANGER.public, chain)
    assert follows(HOST.public, STRANGER.public, chain)


def test_a_key_that_nobody_signed_does_not_follow() -> None:
    assert not follows(HOME.public, STRANGER.public, ())
    assert not follows(HOME.public, STRANGER.public, (link(HOST, STRANGER),))
    assert not follows(HOST.public, HOME.public, (link(HOME, HOST),))  # never backwards


def test_a_forged_link_does_not_count() -> None:
    forged = Succession(HOME.public, STRANGER.public, STRANGER.sign("succession", b"whatever"))
    assert not follows(HOME.public, STRANGER.public, (forged,))
    other = Succession(HOME.public, STRANGER.public, link(HOME, HOST).signature)
    assert not follows(HOME.public, STRANGER.public, (other,))


def test_a_chain_is_not_followed_for_ever() -> None:
    keys = [Identity(bytes([number]) * 32) for number in range(1, 30)]
    chain = tuple(link(old, new) for old, new in pairwise(keys))
    assert follows(keys[0].public, keys[16].public, chain)
    assert not follows(keys[0].public, keys[17].public, chain)


def test_a_circle_ends() -> None:
    assert not follows(HOME.public, STRANGER.public, (link(HOME, HOST), link(HOST, HOME)) * 8)


def test_a_succession_is_read_back_from_its_text() -> None:
    read = Succession.parse(link(HOME, HOST).text)
    read.verify()
    assert read == link(HOME, HOST)


# -- files


def test_a_key_is_read_back_from_its_file(tmp_path: Path) -> None:
    write_identity(tmp_path / "key", HOME)
    assert read_identity(tmp_path / "key") == HOME


def test_a_key_file_is_its_owners_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_identity(tmp_path / "key", HOME)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    write_identity(tmp_path / "key", HOME)
    with pytest.raises(KeyFileError, match="never overwritten"):
        write_identity(tmp_path / "key", HOST)
    assert read_identity(tmp_path / "key") == HOME


def test_a_link_to_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError):
        write_identity(tmp_path / "key", HOME)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o620, 0o601])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    write_identity(tmp_path / "key", HOME)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_identity(tmp_path / "key")


def test_a_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="sterna keys new"):
        read_identity(tmp_path / "key")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot write the key"):
        write_identity(tmp_path / "nowhere" / "key", HOME)


def test_what_is_no_file_is_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="not a file"):
        read_identity(tmp_path / "pipe")
    with pytest.raises(KeyFileError, match="not a file"):
        read_identity(tmp_path)


def test_every_damaged_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_identity(path, HOME)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(len(whole) - 1)]
    damaged += [whole + b"x", b"\xff" * 60, HOME.public.text.encode(), b"x" * 100_000, whole + whole]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(KeyFileError, match="not a secret key"):
            read_identity(path)


def test_a_public_key_has_32_bytes() -> None:
    for size in (0, 31, 33):
        with pytest.raises(WireError):
            PublicKey(bytes(size))
        with pytest.raises(ValueError):
            Identity(bytes(size))
