"""Engines as their host uses them: calls made while one is busy go to it together in the next batch."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, TypeVar

from sterna.errors import EngineEnded
from sterna.model import Budget, Ended, Program, State, StateChange, Target
from sterna.runtime.cell.channel import CellEnded, Channel, Starter
from sterna.runtime.cell.frame import framed
from sterna.runtime.cell.jail import DEFAULT_CPU_SECONDS, DEFAULT_MEMORY_BYTES, JailLimits
from sterna.runtime.cell.pool import Forker
from sterna.runtime.engine import messages
from sterna.runtime.engine.messages import PageView, Verdict

ENTRY = "sterna.runtime.engine.worker:serve"
PAGE_SECONDS = 5.0  # for the rules of one page
GRACE_SECONDS = 1.0  # for a soft stop, before the process is killed
STATE_SECONDS = 30.0  # for loading rules and facts, for returning facts, and after a soft stop
MAX_WAITING = 256  # pages and requests in front of an engine
MAX_STARTS = 3  # of an engine that somebody kills as it begins
BATCH_ITEMS = 64
BATCH_CHARS = 4 * 1024 * 1024
_NEW, _NO_LIMITS = State(), Budget()
_CPU_GRACE_SECONDS = 2.0  # the kernel's hard limit lies behind our own soft one


class Engines(AbstractAsyncContextManager["Engines"]):
    """Opens engines; an async context manager that owns the processes in which they run."""

    def __init__(
        self,
        *,
        is_jailed: bool | None = True,
        starter: Starter | None = None,
        page_seconds: float = PAGE_SECONDS,
    ) -> None:
        self._is_jailed = is_jailed
        self._forker = Forker(ENTRY)  # starts with its first engine
        self._starter: Starter = starter or self._forker
        self._page_seconds = page_seconds
        self._engines: set[Engine] = set()

    async def __aexit__(self, *_: object) -> None:
        for engine in list(self._engines):
            await engine.close()
        await self._forker.close()

    async def open(
        self,
        program: Program,
        *,
        state: State = _NEW,
        facts: Iterable[bytes] = (),
        budget: Budget = _NO_LIMITS,
    ) -> "Engine":
        """An engine whose rules have begun, or gone on from `state`; raises EngineEnded or JailError.

        One that somebody kills meanwhile is started again.
        """
        start = messages.Start(
            rules=program.rules,
            state=state,
            facts=tuple(facts),
            budget=budget,
            page_seconds=self._page_seconds,
            drives_loading=program.drives_loading,
        )
        for tries_left in reversed(range(MAX_STARTS)):
            try:
                return await self._start(start)
            except EngineEnded as error:
                if not (error.is_outside and tries_left):
                    raise
        raise AssertionError("the last try returns or raises")

    async def _start(self, start: messages.Start) -> "Engine":
        budget = start.budget
        cpu_seconds = budget.cpu_seconds + _CPU_GRACE_SECONDS if budget.cpu_seconds else DEFAULT_CPU_SECONDS
        memory_bytes = budget.memory_bytes or DEFAULT_MEMORY_BYTES
        limits = JailLimits(memory_bytes=memory_bytes, cpu_seconds=cpu_seconds)
        process = await self._starter.start(limits=limits, is_jailed=self._is_jailed)
        channel = await Channel.open(process, messages.read_reply, most_bytes=messages.MAX_REPLY_BYTES)
        engine = Engine(channel, page_seconds=self._page_seconds, forget=self._engines.discard)
        self._engines.add(engine)
        await engine.begin(start)
        return engine


class _Job(NamedTuple):
    """A page or a request to be judged, or None to ask for the state's change.

    Not a record: it is part of a cycle (a future, its error, its awaiter), which records hide from the
    garbage collector.
    """

    view: PageView | Target | None
    done: asyncio.Future[Any]  # Verdict, bool or StateChange


_Wanted = TypeVar("_Wanted", messages.Ready, messages.Verdicts, messages.Admitted, messages.Changed)


class Engine:
    """The rules of one crawler in a process of their own; answers in the order of the calls."""

    def __init__(
        self,
        channel: Channel[messages.EngineReply],
        *,
        page_seconds: float,
        forget: Callable[["Engine"], None],
    ) -> None:
        self.first = Verdict()  # what the rules said before any page
        self.asks_before_fetch = False  # some rule is about requests
        self.cpu_seconds = 0.0
        self.has_judged = False  # a page or a request
        self.is_dead = False  # nothing is answered any more
        self._channel = channel
        self._seconds = page_seconds + GRACE_SECONDS
        self._forget = forget
        # All of these are changed in the loop's thread, by the callers and the pump.
        self._jobs: deque[_Job] = deque()
        self._under_way: deque[_Job] = deque()
        self._has_jobs = asyncio.Event()
        self._room = asyncio.Semaphore(MAX_WAITING)
        self._over: EngineEnded | None = None  # nothing more is judged
        self._pump: asyncio.Task[None] | None = None

    async def begin(self, start: messages.Start) -> None:
        """Starts the rules; EngineEnded if they fail to run."""
        try:
            await self._send(start)
            ready = await self._receive(messages.Ready, seconds=STATE_SECONDS)
        except BaseException as error:
            await self.close()
            if isinstance(error, CellEnded):
                raise _engine_ended(error) from None
            raise
        self.first, self.asks_before_fetch = ready.first, ready.asks_before_fetch
        if ready.first.ended:
            self._over = EngineEnded(ready.first.ended, ready.first.detail)
        self._pump = asyncio.create_task(self._run())

    async def judge(self, view: PageView) -> Verdict:
        """What the rules decide on a page; where its `ended` is set, it is the last one."""
        async with self._room:
            verdict: Verdict = await self._put(view)
        return verdict

    async def admits(self, target: Target) -> bool:
        """True unless a rule refuses to have the URL fetched."""
        async with self._room:
            is_admitted: bool = await self._put(target)
        return is_admitted

    async def change(self) -> StateChange:
        """The change of the state since the last call, up to the last page that was judged."""
        change: StateChange = await self._put(None)
        return change

    def memory_bytes(self) -> int:
        return self._channel.memory_bytes()

    async def close(self) -> None:
        """Ends the process; calls that still wait fail with EngineEnded."""
        self._forget(self)
        if self._pump:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if not self.is_dead:
            self._die(EngineEnded(Ended.STOPPED, "the engine was closed"))
        await self._channel.close()

    def _put(self, view: PageView | Target | None) -> asyncio.Future[Any]:
        if self._over and (self.is_dead or view is not None):
            raise EngineEnded(self._over.ended, self._over.detail, is_outside=self._over.is_outside)
        job = _Job(view, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._has_jobs.set()
        return job.done

    # -- the pump ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._has_jobs.wait()
                self._take_batch()
                pages = tuple(job.view for job in self._under_way if isinstance(job.view, PageView))
                requests = tuple(job.view for job in self._under_way if isinstance(job.view, Target))
                if pages:
                    await self._judge(pages)
                elif requests:
                    await self._admit(requests)
                elif self._under_way:
                    await self._ask_for_change()
                del pages, requests  # not kept until the next batch comes
                if not self._jobs:
                    self._has_jobs.clear()
        except EngineEnded as error:
            self._die(error)
        except CellEnded as error:
            self._die(_engine_ended(error))
        except Exception as error:  # a fault of ours must leave nobody waiting for ever
            self._die(EngineEnded(Ended.CRASH, f"the host failed: {error!r}"))
            raise

    def _take_batch(self) -> None:
        """Takes the first jobs of one kind, without those that were given up."""
        chars = 0
        while self._jobs and len(self._under_way) < BATCH_ITEMS and chars < BATCH_CHARS:
            if self._under_way and type(self._jobs[0].view) is not type(self._under_way[0].view):
                return
            job = self._jobs.popleft()
            if not job.done.done():
                self._under_way.append(job)
                chars += len(job.view.text) + len(job.view.html) if isinstance(job.view, PageView) else 0

    async def _judge(self, pages: tuple[PageView, ...]) -> None:
        await self._send(messages.Judge(pages))
        while self._under_way:
            reply = await self._receive(messages.Verdicts, seconds=self._seconds)
            if not 0 < len(reply.verdicts) <= len(self._under_way):
                raise await self._channel.condemn(f"{len(reply.verdicts)} verdicts")
            for verdict in reply.verdicts:
                self._give(verdict)
                if verdict.ended:
                    self._stop_judging(EngineEnded(verdict.ended, verdict.detail))

    async def _admit(self, requests: tuple[Target, ...]) -> None:
        await self._send(messages.Admit(requests))
        reply = await self._receive(messages.Admitted, seconds=self._seconds * len(requests))
        if len(reply.admits) != len(requests):
            raise await self._channel.condemn(f"{len(reply.admits)} admissions for {len(requests)} requests")
        for is_admitted in reply.admits:
            self._give(is_admitted)
        if reply.ended:
            self._stop_judging(EngineEnded(reply.ended, reply.detail))

    async def _ask_for_change(self) -> None:
        await self._send(messages.Change())
        reply = await self._receive(messages.Changed, seconds=STATE_SECONDS)
        self._give(reply.change)
        while self._under_way:  # several asked at once: the first gets it all
            self._give(StateChange())

    async def _send(self, request: messages.EngineRequest) -> None:
        try:
            frame = framed(request, most_bytes=messages.MAX_REQUEST_BYTES)
        except ValueError as error:
            await self._channel.close()
            raise EngineEnded(Ended.MEMORY_BYTES, str(error)) from error
        self._channel.write(frame)

    async def _receive(self, wanted: type[_Wanted], *, seconds: float) -> _Wanted:
        """The next reply, which must be of this type; EngineEnded or CellEnded if there is none."""
        reply = await self._channel.receive(seconds=seconds)
        if isinstance(reply, messages.Stopped):  # it obeyed a soft stop, and puts its facts in order
            reply = await self._channel.receive(seconds=STATE_SECONDS)
        if isinstance(reply, messages.Over):
            await self._channel.close()
            ended = reply.ended if reply.ended in frozenset(Ended) else Ended.CRASH
            raise EngineEnded(ended, reply.detail[:1000])
        if not isinstance(reply, wanted):
            raise await self._channel.condemn(f"a message {type(reply).__name__}")
        self.cpu_seconds = reply.cpu_seconds
        return reply

    def _give(self, result: Verdict | bool | StateChange) -> None:
        job = self._under_way.popleft()
        self.has_judged = self.has_judged or job.view is not None
        done = job.done
        if not done.done():
            done.set_result(result)

    def _stop_judging(self, error: EngineEnded) -> None:
        """Fails the pages and requests that wait; the state can still be requested."""
        self._over = error
        waiting = [*self._under_way, *self._jobs]
        self._under_way.clear()
        self._jobs = deque(job for job in waiting if job.view is None)
        _fail((job for job in waiting if job.view is not None), error)

    def _die(self, error: EngineEnded) -> None:
        self.is_dead = True
        self._over = self._over or error
        _fail((*self._under_way, *self._jobs), error)
        self._under_way.clear()
        self._jobs.clear()


def _engine_ended(error: CellEnded) -> EngineEnded:
    death = error.death
    if death.ended in messages.ENDS:
        return EngineEnded(death.ended, death.detail)
    is_outside = death.ended == "killed"
    return EngineEnded(
        Ended.CRASH, f"its process is gone ({death.ended}: {death.detail})", is_outside=is_outside
    )


def _fail(jobs: Iterable[_Job], error: EngineEnded) -> None:
    for job in jobs:
        if not job.done.done():
            failure = EngineEnded(error.ended, error.detail, is_outside=error.is_outside)
            job.done.set_exception(failure)
