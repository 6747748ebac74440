"""Engines as their host uses them: calls made while one is busy go to it together in the next batch."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from sterna.errors import EngineEnded
from sterna.model import Budget, Ended, Program, State, StateChange, Target
from sterna.runtime.cell.channel import CellEnded, Channel, Starter
from sterna.runtime.cell.jail import JailLimits, protection
from sterna.runtime.cell.pool import Forker
from sterna.runtime.engine.messages import (
    ENDS,
    MAX_REPLY_BYTES,
    Admit,
    Admitted,
    Change,
    Changed,
    EngineLimits,
    EngineReply,
    EngineRequest,
    Judge,
    Over,
    PageView,
    Ready,
    RequestView,
    Start,
    Stopped,
    Verdict,
    Verdicts,
    check_change,
    check_verdict,
    read_reply,
    request_frame,
)

_log = logging.getLogger(__name__)

ENTRY = "sterna.runtime.engine.worker:serve"
PAGE_SECONDS = 5.0  # for the rules of one page
GRACE_SECONDS = 1.0  # for a soft stop, before the process is killed
STATE_SECONDS = 30.0  # for loading rules and facts, for returning facts, and after a soft stop
MAX_WAITING = 256  # pages and requests in front of an engine
BATCH_ITEMS = 64
BATCH_CHARS = 4 * 1024 * 1024
_NEW, _NO_LIMITS = State(), Budget()
_CPU_GRACE_SECONDS = 2.0  # the kernel's hard limit lies behind our own soft one


class Engines:
    """Opens engines; an async context manager that owns the processes in which they run."""

    def __init__(
        self,
        *,
        is_jailed: bool | None = True,
        starter: Starter | None = None,
        page_seconds: float = PAGE_SECONDS,
    ) -> None:
        self._is_jailed = is_jailed
        self._forker = None if starter else Forker(ENTRY)
        self._starter: Starter = starter or self._forker  # type: ignore[assignment]
        self._page_seconds = page_seconds
        self._engines: set[Engine] = set()

    async def __aenter__(self) -> "Engines":
        if self._forker:
            await self._forker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in list(self._engines):
            await engine.close()
        if self._forker:
            await self._forker.__aexit__(kind, error, trace)

    async def open(
        self,
        program: Program,
        *,
        state: State = _NEW,
        facts: Iterable[bytes] = (),
        budget: Budget = _NO_LIMITS,
        is_jailed: bool | None = None,
    ) -> "Engine":
        """An engine with the program's rules, which have begun or gone on from `state`.

        EngineEnded if they fail to; JailError if no process can be started, or none with a jail.
        """
        limits = JailLimits(
            memory_bytes=budget.memory_bytes,
            cpu_seconds=budget.cpu_seconds + _CPU_GRACE_SECONDS if budget.cpu_seconds else 0.0,
        )
        jailed = await self._choose_jail() if is_jailed is None else is_jailed
        process = await self._starter.start(limits=limits, is_jailed=jailed)
        start = Start(
            rules=program.rules,
            state=state,
            facts=tuple(facts),
            limits=EngineLimits(
                page_seconds=self._page_seconds,
                cpu_seconds=budget.cpu_seconds,
                facts=budget.facts,
                scratch_bytes=budget.scratch_bytes,
            ),
            drives_loading=program.drives_loading,
        )
        channel = Channel(process, most_bytes=MAX_REPLY_BYTES)
        engine = Engine(channel, page_seconds=self._page_seconds, forget=self._engines.discard)
        self._engines.add(engine)
        await engine.begin(start)
        return engine

    async def _choose_jail(self) -> bool:
        """As configured; by default jailed if this machine can."""
        if self._is_jailed is None:
            offered = await asyncio.to_thread(protection)
            self._is_jailed = offered.has_seccomp
            if not offered.has_seccomp:
                _log.warning("rules run without a jail: this machine has no seccomp; see `sterna doctor`")
        return self._is_jailed


# Not records: these are parts of cycles (a future, its error, its awaiter), which records hide from the
# garbage collector.
class _Page(NamedTuple):
    view: PageView
    done: asyncio.Future[Verdict]


class _Request(NamedTuple):
    view: RequestView
    done: asyncio.Future[bool]


class _Asking(NamedTuple):
    done: asyncio.Future[StateChange]


_Job = _Page | _Request | _Asking
_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted", bound=EngineReply)


class Engine:
    """The rules of one crawler in a process of their own; answers in the order of the calls."""

    def __init__(self, channel: Channel, *, page_seconds: float, forget: Callable[["Engine"], None]) -> None:
        self.first = Verdict()  # what the rules said before any page
        self.asks_before_fetch = False  # some rule is about requests
        self.cpu_seconds = 0.0
        self._channel = channel
        self._seconds = page_seconds + GRACE_SECONDS
        self._forget = forget
        # All of these are changed in the loop's thread, by the callers and the pump.
        self._jobs: deque[_Job] = deque()
        self._under_way: deque[_Job] = deque()
        self._has_jobs = asyncio.Event()
        self._room = asyncio.Semaphore(MAX_WAITING)
        self._over: EngineEnded | None = None  # nothing more is judged
        self._is_dead = False  # and nothing is answered any more
        self._pump: asyncio.Task[None] | None = None

    async def begin(self, start: Start) -> None:
        """Starts the rules; EngineEnded if they fail to run."""
        try:
            await self._channel.open()
            await self._send(start)
            ready = await self._receive(Ready, seconds=STATE_SECONDS)
            await self._check(ready.first)
        except BaseException:
            await self.close()
            raise
        self.first, self.asks_before_fetch = ready.first, ready.asks_before_fetch
        self.cpu_seconds = ready.cpu_seconds
        if ready.first.ended:
            self._over = EngineEnded(ready.first.ended, ready.first.detail)
        self._pump = asyncio.create_task(self._run())

    async def judge(self, view: PageView) -> Verdict:
        """What the rules decide on a page; where its `ended` is set, it is the last one."""
        async with self._room:
            job = _Page(view, _future())
            self._put(job)
            return await job.done

    async def admits(self, target: Target) -> bool:
        """True unless a rule refuses to have the URL fetched."""
        async with self._room:
            job = _Request(RequestView(target.url, target.depth, target.referrer, target.priority), _future())
            self._put(job)
            return await job.done

    async def change(self) -> StateChange:
        """The change of the state since the last call, up to the last page that was judged."""
        job = _Asking(_future())
        self._put(job)
        return await job.done

    def memory_bytes(self) -> int:
        """The resident memory of its process; 0 if it is over."""
        return self._channel.usage().memory_bytes

    async def close(self) -> None:
        """Ends the process; calls that still wait fail with EngineEnded."""
        self._forget(self)
        if self._pump:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if not self._is_dead:
            self._die(EngineEnded(Ended.STOPPED, "the engine was closed"))
        await self._channel.close()

    def _put(self, job: _Job) -> None:
        if self._over and (self._is_dead or not isinstance(job, _Asking)):
            raise EngineEnded(self._over.ended, self._over.detail)
        self._jobs.append(job)
        self._has_jobs.set()

    # -- the pump ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._has_jobs.wait()
                self._take_batch()
                await self._carry_out()
                if not self._jobs:
                    self._has_jobs.clear()
        except EngineEnded as error:
            self._die(error)
        except Exception as error:  # a fault of ours must leave nobody waiting for ever
            self._die(EngineEnded(Ended.CRASH, f"the host failed: {error!r}"))
            raise

    def _take_batch(self) -> None:
        """Takes the first jobs of one kind, without those that were given up."""
        chars = 0
        while self._jobs and len(self._under_way) < BATCH_ITEMS and chars < BATCH_CHARS:
            if self._under_way and type(self._jobs[0]) is not type(self._under_way[0]):
                return
            job = self._jobs.popleft()
            if not job.done.done():
                self._under_way.append(job)
                chars += len(job.view.text) + len(job.view.html) if isinstance(job, _Page) else 0

    async def _carry_out(self) -> None:
        pages = tuple(job.view for job in self._under_way if isinstance(job, _Page))
        requests = tuple(job.view for job in self._under_way if isinstance(job, _Request))
        if pages:
            await self._send(Judge(pages))
            await self._take_verdicts()
        elif requests:
            await self._send(Admit(requests))
            await self._take_admissions(len(requests))
        elif self._under_way:
            await self._send(Change())
            await self._take_change()

    async def _take_verdicts(self) -> None:
        while self._under_way:
            reply = await self._receive(Verdicts, seconds=self._seconds)
            self.cpu_seconds = reply.cpu_seconds
            if not 0 < len(reply.verdicts) <= len(self._under_way):
                raise await self._condemn(f"{len(reply.verdicts)} verdicts")
            for verdict in reply.verdicts:
                await self._check(verdict)
                self._give(verdict)
                if verdict.ended:
                    self._stop_judging(EngineEnded(verdict.ended, verdict.detail))

    async def _take_admissions(self, count: int) -> None:
        reply = await self._receive(Admitted, seconds=self._seconds * count)
        self.cpu_seconds = reply.cpu_seconds
        if len(reply.admits) != count:
            raise await self._condemn(f"{len(reply.admits)} admissions for {count} requests")
        for is_admitted in reply.admits:
            self._give(is_admitted)
        if reply.ended:
            self._stop_judging(EngineEnded(reply.ended, reply.detail))

    async def _take_change(self) -> None:
        reply = await self._receive(Changed, seconds=STATE_SECONDS)
        self.cpu_seconds = reply.cpu_seconds
        try:
            check_change(reply.change)
        except ValueError as error:
            raise await self._condemn(str(error)) from error
        self._give(reply.change)
        while self._under_way:  # several asked at once: the first gets it all
            self._give(StateChange())

    async def _send(self, request: EngineRequest) -> None:
        try:
            frame = request_frame(request)
        except ValueError as error:
            await self._channel.close()
            raise EngineEnded(Ended.MEMORY_BYTES, str(error)) from error
        self._channel.write(frame)

    async def _receive(self, wanted: type[_Wanted], *, seconds: float) -> _Wanted:
        """The next reply, which must be of this type; EngineEnded if the process ends instead."""
        reply = await self._next(seconds)
        if isinstance(reply, Stopped):  # it obeyed a soft stop, and puts its facts in order
            reply = await self._next(STATE_SECONDS)
        if isinstance(reply, Over):
            await self._channel.close()
            ended = reply.ended if reply.ended in frozenset(Ended) else Ended.CRASH
            raise EngineEnded(ended, reply.detail[:1000])
        if not isinstance(reply, wanted):
            raise await self._condemn(f"a message {type(reply).__name__}")
        return reply

    async def _next(self, seconds: float) -> EngineReply:
        try:
            return read_reply(await self._channel.receive(seconds=seconds))
        except CellEnded as error:
            raise _engine_ended(error) from None
        except ValueError as error:
            raise await self._condemn(str(error)) from error

    async def _condemn(self, detail: str) -> EngineEnded:
        return _engine_ended(await self._channel.condemn(detail))

    async def _check(self, verdict: Verdict) -> None:
        try:
            check_verdict(verdict)
        except ValueError as error:
            raise await self._condemn(str(error)) from error

    def _give(self, result: Verdict | bool | StateChange) -> None:
        done: asyncio.Future[Any] = self._under_way.popleft().done
        if not done.done():
            done.set_result(result)

    def _stop_judging(self, error: EngineEnded) -> None:
        """Fails the pages and requests that wait; the state can still be requested."""
        self._over = error
        waiting = [*self._under_way, *self._jobs]
        self._under_way.clear()
        self._jobs = deque(job for job in waiting if isinstance(job, _Asking))
        _fail((job for job in waiting if not isinstance(job, _Asking)), error)

    def _die(self, error: EngineEnded) -> None:
        self._is_dead = True
        self._over = self._over or error
        _fail((*self._under_way, *self._jobs), error)
        self._under_way.clear()
        self._jobs.clear()


def _engine_ended(error: CellEnded) -> EngineEnded:
    death = error.death
    if death.ended in ENDS:
        return EngineEnded(death.ended, death.detail)
    return EngineEnded(Ended.CRASH, f"its process is gone ({death.ended}: {death.detail})")


def _future() -> asyncio.Future[_Result]:
    return asyncio.get_running_loop().create_future()


def _fail(jobs: Iterable[_Job], error: EngineEnded) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(EngineEnded(error.ended, error.detail))
