"""Whatever comes instead of a host's stream is cleanly refused, and what comes before it is true."""

import random

import msgspec
import pytest
import zstandard
from tests.home.away import lying
from tests.home.away.lying import NOW, Chunks, page, parcel, parcels

from sterna.errors import HostGone, WireError
from sterna.home.away.inbox import Inbox, in_our_time, most_bytes
from sterna.model import Budget, Checkpoint, Ended, Known, Parcel, StateChange, Target, Usage
from sterna.wire.frames import FrameWriter, Kind
from sterna.wire.keys import Identity
from sterna.wire.known import marks_of
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.parcels import pack_parcel
from sterna.wire.stream import Ending, StreamWriter

HOST = Identity(bytes([2]) * 32)
KEY = bytes(range(32))
MARKS = marks_of(Known())
TRUE = parcels(4)
PACKED = [pack_parcel(each, MARKS) for each in TRUE]


def ending() -> Ending:
    tree = Tree()
    for each in TRUE:
        for made in each.pages:
            tree.add(leaf_of(made))
    return Ending(
        visit="v1", parcels=4, pages=8, usage=Usage(), ended=Ended.FINISHED, root=tree.root()
    ).signed(HOST)


END = msgspec.msgpack.encode(ending())


def unloading() -> Inbox:
    made = Inbox(lying.visit(), MARKS, host_key=HOST.public, began=NOW)
    made.begin(KEY)
    return made


def stream(packed: Chunks = PACKED, *, end: bytes | None = None) -> list[bytes]:
    """Sealed as hosts do it, but compressed with less memory, so that thousands are made soon."""
    frames = FrameWriter(KEY)
    squeezer = zstandard.ZstdCompressor(level=1).compressobj()
    chunks = [frames.header]
    for each in packed:
        piece = squeezer.compress(len(each).to_bytes(4, "big") + each)
        piece += squeezer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        chunks.append(frames.frames(Kind.PARCELS, piece))
    return [*chunks, frames.frame(Kind.END, END if end is None else end)]


def unloaded(chunks: Chunks) -> tuple[list[Parcel], bool]:
    """The parcels that came, and whether the end was proven; WireError and HostGone are the end of it."""
    reading, came = unloading(), list[Parcel]()
    try:
        for chunk in chunks:
            came += reading.feed(chunk, now=NOW)
        reading.finish()
    except (WireError, HostGone) as error:
        assert "\n" not in str(error)
    return came, reading.is_over


def spoil(data: bytes, chance: random.Random) -> bytes:
    """The data with a few of its bytes changed, lost, repeated or made up."""
    spoiled = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(spoiled) + 1)
        size = chance.choice((1, 1, 2, 8, 64))
        match chance.randrange(5):
            case 0:
                spoiled[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del spoiled[at : at + size]
            case 2:
                spoiled[at:at] = chance.randbytes(size)
            case 3:
                spoiled[at:at] = spoiled[at : at + size]
            case _:
                spoiled[at : at + size] = bytes(min(size, len(spoiled) - at))
    return bytes(spoiled)


def test_true_stream_is_read_in_whatever_pieces() -> None:
    whole = b"".join(stream())
    for size in (1, 7, 100, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert unloaded(pieces) == (TRUE, True)


def test_spoiled_stream_brings_a_true_part_at_most() -> None:
    chance, whole = random.Random(1), b"".join(stream())
    for _ in range(600):
        spoiled = spoil(whole, chance)
        came, is_over = unloaded([spoiled])
        assert came == TRUE[: len(came)]
        assert not is_over or spoiled == whole


def test_spoiled_parcels_of_a_host_are_refused_or_make_sense() -> None:
    chance = random.Random(2)
    for _ in range(600):
        number = chance.randrange(len(PACKED))
        packed = [*PACKED[:number], spoil(PACKED[number], chance), *PACKED[number + 1 :]]
        came, _ = unloaded(stream(packed))
        assert came[:number] == TRUE[:number]
        for each in came:
            assert (each.visit, each.epoch, each.part, each.site) == ("v1", 3, "/", lying.SITE)
            assert all(made.url.startswith(f"{lying.SITE}/") for made in each.pages)


def test_spoiled_ends_of_a_host_are_never_proven() -> None:
    chance = random.Random(3)
    for _ in range(500):
        spoiled = spoil(END, chance)
        came, is_over = unloaded(stream(end=spoiled))
        assert came == TRUE
        assert not is_over or msgspec.msgpack.decode(spoiled) == msgspec.msgpack.decode(END)


@pytest.mark.parametrize("kind", [Kind.PARCELS, Kind.LOG, Kind.PROBLEM, Kind.END])
def test_frames_of_random_bytes_are_refused(kind: Kind) -> None:
    chance = random.Random(kind)
    for _ in range(300):
        writer = FrameWriter(KEY)
        sealed = writer.frame(kind, chance.randbytes(chance.choice((0, 1, 10, 1000, 60_000))))
        assert unloaded([writer.header, sealed]) == ([], False)


def test_stream_goes_on_after_another() -> None:
    reading = unloading()
    first, again = stream(), StreamWriter(bytes(32), level=1)
    came = [each for chunk in first[:3] for each in reading.feed(chunk, now=NOW)]
    with pytest.raises(WireError, match="cut off"):
        reading.finish()
    reading.begin(bytes(32))
    rest = [again.begin(), *map(again.parcel, PACKED[2:]), again.end(ending())]
    came += [each for chunk in rest for each in reading.feed(chunk, now=NOW)]
    assert came == TRUE
    assert reading.is_proven


def test_proof_is_left_to_nobody_where_parcels_came_before() -> None:
    reading = Inbox(lying.visit(), MARKS, host_key=HOST.public, began=0.0, first=3)
    reading.begin(KEY)
    came = [each for chunk in stream(PACKED[2:]) for each in reading.feed(chunk, now=NOW)]
    assert came == TRUE[2:]
    assert (reading.is_over, reading.is_proven) == (True, False)


def test_times_of_a_clock_that_is_ahead_are_set_back() -> None:
    found, again = Target(f"{lying.SITE}/f"), Target(f"{lying.SITE}/a", not_before=NOW + 150)
    ahead = parcel(1, page("/x", fetched=NOW + 100), checkpoint=Checkpoint(found=(found,), again=(again,)))
    ours = in_our_time(ahead, 100.0)
    assert ours.pages[0].fetched == NOW
    assert (ours.checkpoint.found[0].not_before, ours.checkpoint.again[0].not_before) == (0.0, NOW + 50)


@pytest.mark.parametrize(
    ("budget", "is_less"),
    [(Budget(pages=1), True), (Budget(pages=1000, sent_bytes=1000), True), (Budget(pages=1000), False)],
)
def test_bytes_of_a_visit_are_bounded_by_its_budget(budget: Budget, is_less: bool) -> None:
    unlimited = most_bytes(lying.visit(budget=Budget(pages=1000)))
    assert (most_bytes(lying.visit(budget=budget)) < unlimited) is is_less


def received(*given: Parcel) -> list[Parcel]:
    """The parcels of a stream with these; WireError if one is refused."""
    inbox = unloading()
    return [
        came
        for chunk in stream([pack_parcel(each, MARKS) for each in given])
        for came in inbox.feed(chunk, now=NOW)
    ]


def test_kinds_of_errors_are_bounded_in_all_parcels_of_a_visit_together() -> None:
    def erring(number: int) -> Parcel:
        return parcel(number, usage=Usage(errors={f"e{number}_{each}": 1 for each in range(600)}))

    with pytest.raises(WireError, match="more than 1,000 kinds of errors in a visit"):
        received(erring(1), erring(2))
    same = msgspec.structs.replace(erring(1), number=2)
    with pytest.raises(WireError, match="counts 4 parcels, but 2"):  # both were taken
        received(erring(1), same)


def test_facts_that_a_crawler_keeps_are_bounded_in_all_parcels_together() -> None:
    def keeping(number: int, first: int, *, removed: tuple[int, ...] = ()) -> Parcel:
        added = tuple((each, bytes(1_000_000)) for each in range(first, first + 20))
        return parcel(number, state=StateChange(added=added, removed=removed))

    with pytest.raises(
        WireError, match=r"the crawler's own facts take 60,009,600 bytes of memory; 50,331,648"
    ):
        received(keeping(1, 0), keeping(2, 20), keeping(3, 40))
    for third in (keeping(3, 20), keeping(3, 40, removed=tuple(range(20)))):  # changed, or instead of others
        with pytest.raises(WireError, match="counts 4 parcels, but 3"):
            received(keeping(1, 0), keeping(2, 20), third)
