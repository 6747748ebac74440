"""The ledger as the event loop uses it: every call runs in the one thread that owns the connection."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from sterna.home.ledger.interface import Ledger

T = TypeVar("T")


class LedgerDesk:
    """Runs calls of a ledger in its thread."""

    def __init__(self, ledger: Ledger, thread: Executor) -> None:
        self.ledger = ledger
        self._thread = thread

    async def do(self, call: Callable[[Ledger], T]) -> T:
        """The result of `call`, which is given the ledger."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self.ledger)
