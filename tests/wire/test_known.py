"""What is known of a site: small on the wire, the same at both ends, and no trap for whoever unpacks it."""

import random
import time
from array import array

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import WireError
from sterna.model import Known, Validator
from sterna.wire.known import DIGEST_BYTES, marks_of, pack_known, unpack_known

LEAST, MOST = -(2**63), 2**63 - 1
MARKS = st.one_of(st.integers(LEAST, MOST), st.integers(-5, 5), st.sampled_from([LEAST, MOST]))
VALIDATORS = st.builds(
    Validator,
    MARKS,
    etag=st.sampled_from(["", '"etag"']),
    modified=st.sampled_from(["", "Thu, 01 Jan 1970 00:00:00 GMT"]),
    digest=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
    has_raw=st.booleans(),
    likeness=st.one_of(st.just(b""), st.binary(min_size=8, max_size=8)),
)


def seen_of(marks: set[int]) -> bytes:
    return array("q", sorted(marks)).tobytes()


def sites(count: int, seed: int = 1) -> list[int]:
    return list(array("q", random.Random(seed).randbytes(8 * count)))


def travelled(validator: Validator) -> Validator:
    """What of it the other end has."""
    return Validator(
        validator.fingerprint, digest=validator.digest[:DIGEST_BYTES], likeness=validator.likeness
    )


@given(st.sets(MARKS), st.lists(VALIDATORS, unique_by=lambda each: each.fingerprint))
def test_what_is_known_comes_through(seen: set[int], validators: list[Validator]) -> None:
    known = unpack_known(pack_known(Known(seen_of(seen), tuple(validators))))
    assert known.fingerprints == seen_of(seen)
    ordered = sorted(validators, key=lambda each: each.fingerprint)
    assert known.validators == tuple(map(travelled, ordered))


@pytest.mark.parametrize("known", [Known(), Known(seen_of({7})), Known(validators=(Validator(7),))])
def test_nothing_and_one_url_are_small(known: Known) -> None:
    packed = pack_known(known)
    assert unpack_known(packed) == known
    assert len(packed) < 64


@given(st.lists(VALIDATORS))
def test_both_ends_number_the_pages_alike(validators: list[Validator]) -> None:
    known = Known(validators=tuple(validators))
    here, there = marks_of(known), marks_of(unpack_known(pack_known(known)))
    marks = sorted({each.fingerprint for each in validators})
    assert list(here) == list(there) == marks
    assert [there[mark] for mark in marks] == list(range(len(marks)))


def test_url_that_is_not_there_has_no_place() -> None:
    marks = marks_of(Known(validators=(Validator(7),)))
    assert 8 not in marks


def test_what_only_some_have_comes_through() -> None:
    marks = sorted(sites(1000))
    validators = tuple(
        Validator(
            mark,
            digest=mark.to_bytes(8, "big", signed=True)[:5] if at % 3 else b"",
            likeness=mark.to_bytes(8, "big", signed=True) if at % 5 == 0 else b"",
        )
        for at, mark in enumerate(marks)
    )
    packed = pack_known(Known(validators=validators))
    assert unpack_known(packed).validators == validators
    assert len(packed) < 1000 * 7.1 + 667 * 5 + 200 * 8 + 300


@pytest.mark.parametrize(
    ("count", "bare", "with_digest", "with_likeness"),
    [(1_200, 7.1, 12.1, 20.1), (100_000, 6.3, 11.3, 19.3)],
)
def test_bytes_for_each_url(count: int, bare: float, with_digest: float, with_likeness: float) -> None:
    marks = sites(count)
    chance = random.Random(2)
    digests = [chance.randbytes(16) for _ in marks]
    likenesses = [chance.randbytes(8) for _ in marks]
    validators = tuple(Validator(mark, digest=digest) for mark, digest in zip(marks, digests, strict=True))
    alike = tuple(
        msgspec.structs.replace(each, likeness=likeness)
        for each, likeness in zip(validators, likenesses, strict=True)
    )
    assert len(pack_known(Known(seen_of(set(marks))))) / count < bare
    assert len(pack_known(Known(validators=validators))) / count < with_digest
    assert len(pack_known(Known(validators=alike))) / count < with_likeness


def test_each_of_many_urls_takes_well_under_a_microsecond() -> None:
    seen = seen_of(set(sites(300_000)))
    began = time.process_time()
    known = unpack_known(pack_known(Known(seen)))
    assert time.process_time() - began < 0.3
    assert known.fingerprints == seen


# What no honest home sends


def spoiled(known: Known, field: int, value: object) -> bytes:
    parts = msgspec.msgpack.decode(pack_known(known))
    parts[field] = value
    return msgspec.msgpack.encode(parts)


def squeezed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


SEEN, READ, HAS_DIGEST, DIGESTS, HAS_LIKENESS, LIKENESSES = range(6)
GOOD = Known(seen_of({1, 2}), (Validator(3, digest=b"digest"), Validator(4, likeness=b"likeness")))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (SEEN, [b"", b"12345"]),
        (SEEN, [b"", b"123456"]),
        (SEEN, [b"no zstd", b"123456"]),
        (SEEN, [squeezed(b"\0"), b"123456"]),
        (SEEN, [squeezed(b"\0\0\0"), b"123456"]),
        (SEEN, [squeezed(bytes(4)), b"123456123456"]),  # the same twice
        (SEEN, [squeezed(bytes(4)), b"223456123456"]),  # not sorted
        (SEEN, [squeezed(b"\xff\xff\xff\xff"), b"123456123456"]),  # beyond 64 bits
        (SEEN, [squeezed(bytes(100_000_000)), b"123456"]),
        (SEEN, [b"", b"", msgspec.Raw(b"\x91" * 100_000 + b"\0")]),
        (SEEN, 7),
        (READ, [b"", b""]),
        (HAS_DIGEST, squeezed(b"\1\1")),
        (HAS_DIGEST, squeezed(b"\0\0")),
        (HAS_DIGEST, squeezed(b"\1")),
        (HAS_DIGEST, squeezed(b"\1\2")[:-1]),
        (HAS_DIGEST, b""),
        (DIGESTS, b"diges!"),
        (DIGESTS, b""),
        (HAS_LIKENESS, squeezed(b"\0\1\1")),
        (LIKENESSES, b"like"),
    ],
)
def test_what_nobody_can_have_packed_is_refused(field: int, value: object) -> None:
    assert unpack_known(pack_known(GOOD)).fingerprints == GOOD.fingerprints
    with pytest.raises(WireError):
        unpack_known(spoiled(GOOD, field, value))


def test_no_bytes_are_nothing_known() -> None:
    assert unpack_known(b"") == Known()


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(WireError):
        unpack_known(garbage)


@given(st.data())
def test_changed_bytes_are_refused_or_still_a_sorted_set(data: st.DataObject) -> None:
    packed = bytearray(pack_known(GOOD))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        known = unpack_known(bytes(packed))
    except WireError:
        return
    seen = array("q", known.fingerprints)
    assert list(seen) == sorted(set(seen))
    assert all(len(each.digest) in (0, 5) and len(each.likeness) in (0, 8) for each in known.validators)
