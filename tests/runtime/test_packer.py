"""What goes into which parcel, where there is more than one carries."""

from tests.runtime.fakes import SITE, visit_of

from sterna.model import Budget, Page, Parcel, StateChange, Target
from sterna.runtime.packer import (
    FULL_PAGES,
    MIB,
    MOST_AGAIN_BYTES,
    MOST_CHANGE_BYTES,
    MOST_STATE_BYTES,
    MOST_URL_BYTES,
    Packer,
    is_too_heavy,
)
from sterna.runtime.reins import Gauge
from sterna.web.urls import MAX_URL_LENGTH
from sterna.web.weight import weight_of_url
from sterna.wire.parcels import Unpacker, pack_parcel

MANY = 40_000  # URLs, more than one parcel carries


def packer() -> Packer:
    return Packer(visit_of(), full_bytes=4_000_000)


def taken(made: Packer, *, state: StateChange | None = None, again: tuple[Target, ...] = ()) -> list[Parcel]:
    return made.take(
        Gauge(), holds=(), delay_seconds=0.0, again=again, state=state or StateChange(), ended=None
    )


def urls(count: int, site: str = SITE) -> list[Target]:
    return [Target(f"{site}/{number}", 1, f"{SITE}/") for number in range(count)]


def test_many_urls_go_ahead_of_what_led_to_them() -> None:
    made = packer()
    for each in urls(MANY):
        made.add_found(each)
    for each in urls(MANY, "https://other.example"):
        made.add_outlink(each)
    made.add_done(Target(f"{SITE}/sitemap.xml", kind="sitemap"))
    *ahead, last = taken(made)
    assert [parcel.number for parcel in (*ahead, last)] == list(range(1, len(ahead) + 2))
    assert [len(parcel.checkpoint.done) for parcel in ahead] == [0] * len(ahead)
    assert (len(last.checkpoint.done), last.checkpoint.found, last.outlinks) == (1, (), ())
    assert [each for parcel in ahead for each in parcel.checkpoint.found] == urls(MANY)
    assert [each for parcel in ahead for each in parcel.outlinks] == urls(MANY, "https://other.example")
    for parcel in ahead:
        weight = sum(map(weight_of_url, (*parcel.checkpoint.found, *parcel.outlinks)))
        assert weight < MOST_URL_BYTES + 10_000


def test_few_urls_go_with_the_rest_unless_that_is_heavy() -> None:
    fact = StateChange(added=((1, bytes(10_000_000)),))
    for state, ahead in ((StateChange(), 0), (fact, 1)):
        made = packer()
        for each in urls(10):
            made.add_found(each)
        *first, last = taken(made, state=state)
        assert (len(first), len(last.checkpoint.found), last.state) == (ahead, 0 if ahead else 10, state)


def test_start_page_that_moved_is_told_beside_its_page() -> None:
    made, moved = packer(), Target("https://new.example/", 0, f"{SITE}/")
    made.add_outlink(moved)
    for each in urls(MANY, "https://other.example"):
        made.add_outlink(each)
    *ahead, last = taken(made)
    assert last.outlinks == (moved,)
    assert moved not in [each for parcel in ahead for each in parcel.outlinks]


def test_parcel_is_full_with_many_rows_that_say_little() -> None:
    made = packer()
    made.add_rows((b"\x90",) * 50_000)
    assert not made.is_full
    made.add_rows((b"\x90",) * 50_000)
    assert made.is_full
    taken(made)
    assert not made.is_full


def test_parcel_is_full_with_long_urls() -> None:
    made = packer()
    for number in range(1_600):
        made.add_found(Target(f"{SITE}/{number:1990}", 1, f"{SITE}/{'x' * 1_990}"))
    assert made.is_full


def test_no_more_retries_are_told_than_a_parcel_carries() -> None:
    again = tuple(urls(MANY))
    (parcel,) = taken(packer(), again=again)
    told = parcel.checkpoint.again
    assert told == again[: len(told)]
    assert MOST_AGAIN_BYTES - 2_000 < sum(map(weight_of_url, told)) <= MOST_AGAIN_BYTES


def test_change_of_facts_is_too_heavy_by_their_number_and_by_what_they_say() -> None:
    assert not is_too_heavy(StateChange(added=tuple((number, b"fact") for number in range(100_000))))
    assert is_too_heavy(StateChange(added=tuple((number, b"fact") for number in range(250_000))))
    assert is_too_heavy(StateChange(added=((1, bytes(MOST_STATE_BYTES)),)))
    assert is_too_heavy(StateChange(removed=tuple(range(700_000))))
    assert is_too_heavy(StateChange(memory=bytes(MOST_STATE_BYTES + 1)))


def test_change_of_facts_is_too_heavy_for_the_bytes_of_a_parcel_long_before_its_memory() -> None:
    assert not is_too_heavy(StateChange(added=tuple((number, bytes(MIB)) for number in range(19))))
    assert is_too_heavy(StateChange(added=tuple((number, bytes(MIB)) for number in range(20))))
    assert is_too_heavy(StateChange(added=((1, bytes(5 * MIB)),), memory=bytes(15 * MIB)))


def test_fact_that_no_home_takes_is_too_heavy() -> None:
    assert not is_too_heavy(StateChange(added=((1, bytes(16 * MIB)),)))
    assert is_too_heavy(StateChange(added=((1, bytes(16 * MIB + 1)),)))


def test_heaviest_change_of_facts_that_is_not_too_heavy_travels_with_all_that_may_be_beside_it() -> None:
    """Even if each of its pages must be given up."""
    left, size = MOST_CHANGE_BYTES - 3 * 16, 16 * MIB
    state = StateChange(added=((1, bytes(size)), (2, bytes(left - size))), removed=(3,))
    assert not is_too_heavy(state)
    visit, made = visit_of(budget=Budget(urls=500_000)), packer()
    long = f"{SITE}/{'x' * (MAX_URL_LENGTH - len(SITE) - 10)}"
    for number in range(FULL_PAGES):
        page = Page(
            url=f"{long}{number}",
            fingerprint=number,
            depth=1,
            fetched=1.0,
            status=200,
            referrer=f"{long}r",
            text="x" * 50_000,
        )
        made.add_page(page)
    again = tuple(Target(f"{long}{number}", 1, long, not_before=float(number)) for number in range(2_000))
    for number in range(500_000):
        made.drop(number)
    *ahead, last = taken(made, state=state, again=again)
    assert last.state == state
    assert len(last.checkpoint.again) > 500
    for each in (*ahead, last):
        came = Unpacker(visit, {}).unpack(pack_parcel(each, {}), now=10.0)
        assert came.number == each.number
