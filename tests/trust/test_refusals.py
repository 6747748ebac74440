"""What is kept of the URLs that a host says rules refuse."""

from collections import Counter
from random import Random

from tests.home.away.lying import SITE, page, parcel

from sterna.model import Checkpoint, Parcel, State, StateChange, Target
from sterna.trust import runs
from sterna.trust.refusals import MOST_REFUSALS, MOST_WATCHED, RefusalWitness
from sterna.web.urls import fingerprint

STATE = State(((1, b"one"),), b"memory")


def urls(*names: str) -> tuple[Target, ...]:
    return tuple(Target(f"{SITE}/{name}", 1, f"{SITE}/") for name in names)


def marks(*names: str) -> tuple[int, ...]:
    return tuple(fingerprint(each.url) for each in urls(*names))


def witness(*starts: str, has_memory: bool = False, seed: int = 1) -> RefusalWitness:
    return RefusalWitness(Random(seed), urls(*starts), STATE, has_memory=has_memory)


def done(number: int, *names: str, found: tuple[Target, ...] = ()) -> Parcel:
    added = StateChange(added=((10 + number, b"more"),))
    return parcel(number, checkpoint=Checkpoint(found=found, done=marks(*names)), state=added)


def test_urls_that_are_done_without_a_page_are_kept_and_no_others() -> None:
    seen = witness("start")
    seen.see(done(1, found=(*urls("a", "b", "c"), Target(f"{SITE}/map.xml", kind="sitemap"))))
    seen.see(parcel(2, page("/b"), checkpoint=Checkpoint(done=marks("a", "start", "map.xml"))))
    assert [each.url for each in seen.kept.targets] == [f"{SITE}/a", f"{SITE}/start"]
    assert [each.url for each in seen.waiting] == [f"{SITE}/c"]
    assert seen.kept.states == (STATE,)


def test_url_is_asked_for_with_its_last_priority() -> None:
    seen = witness()
    seen.see(done(1, found=(Target(f"{SITE}/a"), Target(f"{SITE}/a", priority=7))))
    seen.see(done(2, "a"))
    assert [each.priority for each in seen.kept.targets] == [7]


def test_what_is_hidden_among_many_that_are_refused_is_kept_too() -> None:
    seen = witness()
    names = [f"{n}" for n in range(5 * MOST_REFUSALS)]
    seen.see(done(1, *names, found=urls(*names)))
    assert len(seen.kept.targets) == MOST_REFUSALS
    late = sum(int(each.url.rpartition("/")[2]) >= 4 * MOST_REFUSALS for each in seen.kept.targets)
    assert 300 < late < 500


def test_rules_that_remember_are_asked_in_the_states_around_one_parcel() -> None:
    kept = Counter[str]()
    for seed in range(60):
        seen = witness(has_memory=True, seed=seed)
        for number in range(1, 4):
            name = f"{number}"
            seen.see(done(number, name, found=urls(name)))
        ((target,), (before, after)) = seen.kept.targets, seen.kept.states
        number = int(target.url.rpartition("/")[2])
        assert [fact for fact, _ in before.facts] == [1, *range(11, 10 + number)]
        assert [fact for fact, _ in after.facts] == [1, *range(11, 11 + number)]
        kept[target.url] += 1
    assert len(kept) == 3


def test_share_of_refusals_is_that_of_the_parcel() -> None:
    seen = witness(has_memory=True)
    seen.see(parcel(1, page("/b"), page("/c"), page("/d")))
    seen.see(
        parcel(2, page("/e"), page("/f"), page("/g"), checkpoint=Checkpoint(found=urls("a"), done=marks("a")))
    )
    assert seen.kept.share == 0.25


def test_of_a_state_that_is_too_large_nothing_is_kept() -> None:
    small = runs.MAX_STATE_BYTES // 160  # bytes of a fact that says nothing
    for large in (((1, bytes(runs.MAX_STATE_BYTES + 1)),), tuple((n, b"") for n in range(small + 1))):
        seen = RefusalWitness(Random(1), urls("a"), State(large), has_memory=True)
        seen.see(done(1, "a"))
        assert (seen.kept.targets, seen.kept.states) == ((), ())


def test_of_very_many_urls_some_are_watched_and_the_share_stays_right() -> None:
    names = [f"{n}" for n in range(3 * MOST_WATCHED)]
    seen = witness(has_memory=True)
    seen.thin()
    for at in range(0, len(names), MOST_WATCHED):
        seen.see(done(1, found=urls(*names[at : at + MOST_WATCHED])))
        assert len(list(seen.waiting)) <= MOST_WATCHED
    refused = names[: 2 * MOST_WATCHED]
    pages = [page(f"/{name}") for name in names[2 * MOST_WATCHED :: 100]]
    seen.see(parcel(4, *pages, checkpoint=Checkpoint(done=marks(*refused))))
    assert len(seen.kept.targets) == MOST_REFUSALS
    late = sum(int(each.url.rpartition("/")[2]) >= MOST_WATCHED for each in seen.kept.targets)
    assert 850 < late < 1_150
    assert abs(seen.kept.share - len(refused) / (len(refused) + len(pages))) < 0.01


def test_all_urls_are_watched_until_home_has_taken_them_over() -> None:
    seen = witness()
    seen.see(done(1, found=urls(*(f"{n}" for n in range(MOST_WATCHED + 1)))))
    assert len(list(seen.waiting)) == MOST_WATCHED + 1
    seen.thin()
    assert len(list(seen.waiting)) < MOST_WATCHED
