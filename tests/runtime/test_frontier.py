"""The URLs of one visit."""

from array import array

from sterna.model import Target
from sterna.runtime.frontier import Frontier


def target(name: str, depth: int = 0, **fields: float) -> Target:
    return Target(f"https://a.example/{name}", depth, **fields)  # type: ignore[arg-type]


def test_lowest_depth_comes_first_and_then_the_order_of_finding() -> None:
    frontier = Frontier(b"", max_depth=9)
    for number, (name, depth) in enumerate([("c", 2), ("a", 1), ("b", 1)]):
        assert frontier.add(target(name, depth), number)
    order = []
    while (each := frontier.next(0.0)) is not None:
        order.append(each.url[-1])
    assert order == ["a", "b", "c"]
    assert len(frontier) == 0


def test_url_is_taken_once() -> None:
    frontier = Frontier(b"", max_depth=9)
    assert frontier.add(target("a"), 1)
    assert not frontier.add(target("a"), 1)
    assert len(frontier) == 1


def test_what_home_knows_is_not_taken() -> None:
    known = array("q", sorted([-5, 3, 2**62])).tobytes()
    frontier = Frontier(known, max_depth=9)
    assert [frontier.add(target("x"), mark) for mark in (-5, 3, 2**62, 4)] == [False, False, False, True]


def test_too_deep_url_is_new_but_not_fetched() -> None:
    frontier = Frontier(b"", max_depth=2)
    assert frontier.add(target("deep", 3), 1)
    assert frontier.next(0.0) is None
    assert (len(frontier), len(frontier.seen)) == (0, 1)


def test_url_tried_again_waits_for_its_time_and_comes_first_then() -> None:
    frontier = Frontier(b"", max_depth=9)
    frontier.add(target("a"), 1)
    frontier.put_back(target("late", not_before=50.0))
    frontier.put_back(target("soon", not_before=10.0))
    assert frontier.wakes_at() == 10.0
    assert {each.url[-4:] for each in frontier.again()} == {"late", "soon"}
    first, second, third = frontier.next(10.0), frontier.next(10.0), frontier.next(10.0)
    assert first and first.url.endswith("soon")
    assert second and second.url.endswith("/a")
    assert third is None
    assert len(frontier) == 1


def test_higher_priority_comes_first_and_then_lower_depth() -> None:
    frontier = Frontier(b"", max_depth=9, is_best_first=True)
    for number, (depth, priority) in enumerate(((1, 0), (3, 5), (2, 5), (0, -1))):
        frontier.add(Target(f"https://a.test/{number}", depth, priority=priority), number)

    order = [target.url[-1] for _ in range(4) if (target := frontier.next(0.0))]

    assert order == ["2", "1", "0", "3"]


def test_raised_url_comes_once_and_one_that_was_taken_never_again() -> None:
    frontier = Frontier(b"", max_depth=9, is_best_first=True)
    for number in range(3):
        frontier.add(Target(f"https://a.test/{number}"), number)
    frontier.raise_to(7, "https://a.test/2")
    first = frontier.next(0.0)
    frontier.raise_to(9, "https://a.test/2")

    rest = [frontier.next(0.0) for _ in range(3)]

    assert first
    assert (first.url, first.priority) == ("https://a.test/2", 7)
    assert [target and target.url for target in rest] == ["https://a.test/0", "https://a.test/1", None]
    assert len(frontier) == 0


def test_start_that_was_tried_before_waits_for_its_retry() -> None:
    frontier = Frontier(b"", max_depth=9)
    assert frontier.add(target("a", not_before=5.0), 1)
    assert frontier.next(4.0) is None
    assert (len(frontier), frontier.wakes_at()) == (1, 5.0)
    assert frontier.next(5.0) == target("a", not_before=5.0)
