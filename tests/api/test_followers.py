"""Following the archive: when a follower is called, what becomes of its troubles, and when it ends."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import pytest

from sterna.api.followers import INDEX, LOOK_SECONDS, RETRY_SECONDS, Follower, Pursuit
from sterna.archive.manifest import Snapshot
from sterna.errors import StorageError

REST = "index: not complete; the rest is done by: sterna index c"


class Recorder:
    """A follower that notes what it is given, and goes at most so many batches at a time."""

    def __init__(self, *, step: int = 100, batch: int = 0) -> None:
        self.batch = batch
        self.step = step
        self.calls: list[int] = []
        self.happened: list[str] = []
        self.faults: list[Exception] = []  # what the next calls raise
        self.is_in_trouble = False  # although it has come as far as it can

    def __enter__(self) -> "Recorder":
        self.happened.append("opened")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.happened.append("closed")

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        self.calls.append(snapshot.batch)
        if self.faults:
            raise self.faults.pop(0)
        self.batch = min(snapshot.batch, self.batch + self.step)

    def is_left(self, batch: int) -> bool:
        return self.batch < batch or self.is_in_trouble


class Crawl:
    """A crawl that commits a batch with each look at it, until it is over."""

    def __init__(self, batches: int) -> None:
        self.batch = 0
        self.batches = batches
        self.waits: list[float] = []
        self.warnings: list[str] = []
        self.stop = threading.Event()
        self.on_wait: Callable[[], None] = lambda: None

    def take(self) -> Snapshot:
        return Snapshot(tables={}, batch=self.batch)

    def wait(self, seconds: float) -> bool:
        """As Event.wait: returns at once when the crawl is over."""
        self.waits.append(seconds)
        assert len(self.waits) < 1_000, "it never ends"
        self.on_wait()
        is_over = self.batch == self.batches
        self.batch = min(self.batch + 1, self.batches)
        return is_over

    def pursuit(self, opened: Callable[[], AbstractContextManager[Follower] | None]) -> Pursuit:
        return Pursuit(
            INDEX,
            opened,
            take=self.take,
            wait=self.wait,
            stop=self.stop,
            warn=self.warnings.append,
            by_hand="sterna index c",
        )


def test_follower_catches_up_with_each_batch_and_is_closed_at_the_end() -> None:
    crawl, follower = Crawl(3), Recorder()
    pursuit = crawl.pursuit(lambda: follower)
    pursuit.run()
    assert follower.calls == [0, 1, 2, 3, 3]
    assert (pursuit.batch, follower.happened, crawl.warnings) == (3, ["opened", "closed"], [])
    assert set(crawl.waits) == {LOOK_SECONDS}


def test_after_the_end_the_rest_is_done_in_as_many_steps_as_it_takes() -> None:
    crawl, follower = Crawl(10), Recorder(step=1)
    crawl.batch = 10
    crawl.pursuit(lambda: follower).run()
    assert (follower.batch, len(follower.calls)) == (10, 10)


def test_follower_that_comes_no_further_does_not_keep_the_crawl_from_its_end() -> None:
    crawl, follower = Crawl(3), Recorder(step=0)
    crawl.pursuit(lambda: follower).run()
    assert (follower.batch, follower.calls, crawl.warnings) == (0, [0, 1, 2, 3, 3], [REST])


def test_trouble_that_keeps_nobody_waiting_is_named_at_the_end() -> None:
    crawl, follower = Crawl(3), Recorder()
    follower.is_in_trouble = True  # as a database that is down
    crawl.pursuit(lambda: follower).run()
    assert (follower.batch, crawl.warnings) == (3, [REST])


def test_stop_leaves_the_rest() -> None:
    crawl, follower = Crawl(100), Recorder(step=1)
    crawl.on_wait = lambda: crawl.stop.set() if crawl.batch == 5 else None
    crawl.pursuit(lambda: follower).run()
    assert (follower.calls[-1], follower.happened[-1]) == (5, "closed")


def test_follower_that_nobody_wants_yet_is_asked_for_again_and_again() -> None:
    crawl, follower = Crawl(4), Recorder()
    pursuit = crawl.pursuit(lambda: follower if crawl.batch >= 2 else None)
    assert (pursuit.batch, pursuit.follower) == (-1, None)
    pursuit.run()
    assert follower.calls == [2, 3, 4, 4]
    assert pursuit.follower is follower


def test_trouble_that_passes_is_told_to_nobody_and_the_follower_is_opened_anew() -> None:
    crawl, follower = Crawl(3), Recorder()
    follower.faults = [StorageError("in use by another")]
    crawl.pursuit(lambda: follower).run()
    assert (crawl.warnings, follower.batch) == ([], 3)
    assert follower.happened == ["opened", "closed", "opened", "closed"]
    assert crawl.waits[:2] == [RETRY_SECONDS, LOOK_SECONDS]


def test_trouble_that_stays_is_told_once() -> None:
    crawl, follower = Crawl(9), Recorder()
    follower.faults = [StorageError("the disk is full")] * 100
    crawl.pursuit(lambda: follower).run()
    assert crawl.warnings == ["index: the disk is full", REST]


def test_trouble_at_the_end_is_told_even_if_it_is_new() -> None:
    crawl, follower = Crawl(0), Recorder()
    follower.faults = [StorageError("one"), StorageError("two")]
    crawl.pursuit(lambda: follower).run()
    assert crawl.warnings == ["index: two", REST]


def test_trouble_in_opening_is_trouble_like_any_other() -> None:
    crawl = Crawl(2)

    def refuse() -> AbstractContextManager[Follower]:
        raise StorageError("the index is broken")

    pursuit = crawl.pursuit(refuse)
    pursuit.run()
    assert (crawl.warnings, pursuit.batch) == (["index: the index is broken", REST], -1)


def test_error_of_its_own_ends_it_with_a_word() -> None:
    crawl, follower = Crawl(9), Recorder()
    follower.faults = [TypeError("no such thing")]
    pursuit = crawl.pursuit(lambda: follower)
    with pytest.raises(TypeError):
        pursuit.run()
    assert (pursuit.is_broken, follower.happened) == (True, ["opened", "closed"])
    assert crawl.warnings == ["index ended: TypeError: no such thing"]
