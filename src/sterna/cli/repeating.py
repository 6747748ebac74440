"""Something that is done now and then while something else goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def every(seconds: float, show: Callable[[], object]) -> Iterator[None]:
    """Calls `show` now and then from a thread of its own, so that one long call is shown too."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            show()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
