"""Engines as a host uses them: in batches, in order, within bounds, whatever comes out of the line."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
import pytest_asyncio
from tests.runtime.engine.impostors import IMPATIENT, Impostors, after_ready, framed, opened, view
from tests.runtime.engine.running import merged

from sterna.crawler.facts import Fact, decode, encode
from sterna.errors import EngineEnded
from sterna.model import Budget, Program, Source, State, StateChange, Target
from sterna.runtime.cell import seccomp
from sterna.runtime.cell.frame import HEAD_BYTES
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Cell, Death
from sterna.runtime.engine import client, messages
from sterna.runtime.engine.client import Engines
from sterna.runtime.engine.messages import (
    MAX_FOLLOWS,
    MAX_REPLY_BYTES,
    Admitted,
    Change,
    Changed,
    EngineReply,
    EngineRequest,
    Over,
    PageView,
    Ready,
    Stopped,
    Verdict,
    Verdicts,
)
from sterna.runtime.engine.worker import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = """
(deftemplate count (slot n))
(deffacts first (count (n 0)))
(defrule count (page (url ?u)) =>
  (do-for-fact ((?c count)) TRUE (modify ?c (n (+ ?c:n 1))) (emit row ?u ?c:n)))
(defrule refuse (request (url ?u&:(like ?u "%/no"))) => (refuse ?u))
"""


def program(rules: str = COUNT) -> Program:
    return Program(rules=(Source("rules.clp", rules),))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[Engines]:
    async with Engines(is_jailed=not seccomp.why_not()) as engines:
        yield engines


async def test_many_pages_at_once_are_judged_in_the_order_of_the_calls(engines: Engines) -> None:
    engine = await engines.open(program())
    verdicts = await asyncio.gather(*(engine.judge(view(number)) for number in range(300)))
    rows = [decode(verdict.rows[0]).values for verdict in verdicts]
    assert rows == [(f"https://a.example/{number}", number + 1) for number in range(300)]
    assert engine.cpu_seconds > 0
    await engine.close()


async def test_a_change_is_of_the_pages_that_were_judged_before(engines: Engines) -> None:
    engine = await engines.open(program())
    *_, change = await asyncio.gather(*(engine.judge(view(number)) for number in range(7)), engine.change())
    assert isinstance(change, StateChange)
    assert [decode(data) for _, data in change.added] == [Fact("count", slots=(("n", 7),))]
    assert await engine.change() == StateChange()
    await engine.close()


async def test_a_crawler_goes_on_in_another_process(engines: Engines) -> None:
    first = await engines.open(program())
    await first.judge(view(1))
    state = merged(State(), await first.change())
    await first.close()
    second = await engines.open(program(), state=state)
    assert decode((await second.judge(view(2))).rows[0]).values[1] == 2
    await second.close()


async def test_requests_are_asked_only_of_rules_that_care(engines: Engines) -> None:
    engine = await engines.open(program())
    assert engine.asks_before_fetch
    assert await engine.admits(Target("https://a.example/yes"))
    assert not await engine.admits(Target("https://a.example/no"))
    await engine.close()
    careless = await engines.open(program("(defrule a (page) => )"))
    assert not careless.asks_before_fetch
    await careless.close()


async def test_what_rules_say_before_any_page_is_told(engines: Engines) -> None:
    rules = "(defrule load (todo ?url) => (load-page ?url))"
    engine = await engines.open(program(rules), facts=[encode(Fact("todo", ("https://a.example/",)))])
    assert engine.first.follow == (("https://a.example/", 0),)
    await engine.close()


async def test_rules_that_cannot_be_read_are_told_with_their_line(engines: Engines) -> None:
    with pytest.raises(EngineEnded, match=r"rules\.clp:2: defrule a: Missing function") as end:
        await engines.open(program("\n(defrule a (page) => (nothing))"))
    assert end.value.ended == "rules"


async def test_whoever_waits_hears_of_a_close_and_so_does_whoever_comes_later(engines: Engines) -> None:
    engine = await engines.open(
        program("(defrule a (page) => (loop-for-count (?i 1 100000000) (bind ?x 1)))")
    )
    waiting = [asyncio.create_task(engine.judge(view(number))) for number in range(3)]
    asking = asyncio.create_task(engine.change())
    await asyncio.sleep(0)
    await engine.close()
    outcomes = await asyncio.gather(*waiting, asking, return_exceptions=True)
    assert all(isinstance(each, EngineEnded) and each.ended == "stopped" for each in outcomes)
    for late in (engine.judge(view(9)), engine.admits(Target("x")), engine.change()):
        with pytest.raises(EngineEnded):
            await late
    await engine.close()


async def test_a_call_that_is_given_up_disturbs_no_other(engines: Engines) -> None:
    engine = await engines.open(program())
    calls = [asyncio.create_task(engine.judge(view(number))) for number in range(100)]
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    verdicts = [
        call for call in await asyncio.gather(*calls, return_exceptions=True) if isinstance(call, Verdict)
    ]
    assert len(verdicts) == 66
    assert (await engine.judge(view(1000))).rows
    await engine.close()


async def test_engines_end_with_their_owner() -> None:
    async with Engines(is_jailed=False) as owner:
        engine = await owner.open(program())
    with pytest.raises(EngineEnded):
        await engine.judge(view(1))


async def test_30_000_facts_are_saved_and_restored(engines: Engines) -> None:
    many = program("(defrule a (page) => (loop-for-count (?i 1 30000) (assert (x ?i (str-cat n- ?i)))))")
    async with Engines(is_jailed=not seccomp.why_not(), page_seconds=60.0) as patient:
        engine = await patient.open(many)
        await engine.judge(view(1))
        change = await engine.change()
        assert len(change.added) == 30_000
        other = await patient.open(many, state=State(change.added, change.memory or b""))
        assert (await other.change()).added == ()
        await other.judge(view(2))
        await other.judge(view(3))
        assert (await other.change()).added == ()


# -- what may come out of the line -------------------------------------------------------------------------


def long_frame() -> bytes:
    return (MAX_REPLY_BYTES + 1).to_bytes(HEAD_BYTES, "big")


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x00",
        long_frame(),
        b"\x00\x01\x00\x00" + b"\x91" * 65536,
        Verdicts((), 0.0),
        Verdicts((Verdict(), Verdict()), 0.0),
        Admitted((True,), (), 0.0),
        Changed(StateChange(), 0.0),
        Ready(Verdict(), False, 0.0),
        Verdicts((Verdict(ended="no such end"),), 0.0),
        Verdicts((Verdict(follow=tuple((f"{n}", 0) for n in range(2 * MAX_FOLLOWS + 1))),), 0.0),
        Verdicts((Verdict(follow=(("x" * 3_000_000, 0),)),), 0.0),
        Verdicts((Verdict(rows=(b"x" * 2_000_000,)),), 0.0),
        Verdicts((Verdict(log=("x",) * 101),), 0.0),
    ],
)
async def test_an_answer_that_is_none_ends_the_process_and_is_a_violation(
    answer: EngineReply | bytes,
) -> None:
    engine, impostors = await opened(after_ready(answer))
    with pytest.raises(EngineEnded) as end:
        await engine.judge(view(1))
    assert end.value.ended == "violation"
    assert impostors.last
    assert impostors.last.is_killed
    with pytest.raises(EngineEnded, match="violation"):
        await engine.judge(view(2))
    await engine.close()


@pytest.mark.parametrize(
    "change",
    [StateChange(added=((0, b"x"),)), StateChange(removed=(2**63,)), StateChange(added=((-5, b""),))],
)
async def test_a_change_that_no_engine_can_have_made_is_a_violation(change: StateChange) -> None:
    engine, _ = await opened(after_ready(Changed(change, 0.0)))
    with pytest.raises(EngineEnded, match="violation"):
        await engine.change()
    await engine.close()


async def test_a_process_that_is_gone_is_told_by_how_it_died() -> None:
    engine, _ = await opened(after_ready(None))
    with pytest.raises(EngineEnded, match="exit code 3") as end:
        await engine.judge(view(1))
    assert end.value.ended == "crash"
    await engine.close()


async def test_the_reason_that_an_engine_gives_is_told() -> None:
    engine, _ = await opened(after_ready(Over("memory_bytes", "too much")))
    with pytest.raises(EngineEnded) as end:
        await engine.judge(view(1))
    assert (end.value.ended, end.value.detail) == ("memory_bytes", "too much")
    await engine.close()


async def test_an_engine_that_says_nothing_is_killed() -> None:
    engine, impostors = await opened(after_ready(), page_seconds=IMPATIENT)
    with pytest.raises(EngineEnded, match="killed") as end:
        await engine.judge(view(1))
    assert end.value.ended == "wall_seconds"
    assert impostors.last
    assert impostors.last.is_killed
    await engine.close()


async def test_a_stopped_engine_has_time_to_put_its_facts_in_order() -> None:
    last = Verdict(ended="wall_seconds", detail="too slow")
    engine, _ = await opened(after_ready(Stopped(), Verdicts((last,), 1.0)))
    assert await engine.judge(view(1)) == last
    with pytest.raises(EngineEnded, match="too slow"):
        await engine.judge(view(2))
    await engine.close()


async def test_pages_that_wait_behind_a_stop_are_not_judged_and_the_state_can_still_be_asked_for() -> None:
    said = after_ready(Verdicts((Verdict(ended="facts"),), 1.0))
    changed = framed(Changed(StateChange(removed=(7,)), 1.0))

    def answer(question: EngineRequest) -> bytes | None:
        return said(question) if not isinstance(question, Change) else bytes(changed)

    engine, _ = await opened(answer)
    *pages, change = await asyncio.gather(
        *(engine.judge(view(number)) for number in range(3)), engine.change(), return_exceptions=True
    )
    assert isinstance(pages[0], Verdict)
    assert [str(each) for each in pages[1:]] == ["facts", "facts"]
    assert change == StateChange(removed=(7,))
    assert await engine.change() == StateChange(removed=(7,))
    await engine.close()


async def test_a_question_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = await opened(after_ready())
    monkeypatch.setattr(messages, "MAX_REQUEST_BYTES", 1000)
    with pytest.raises(EngineEnded, match="larger than") as end:
        await engine.judge(PageView(url="x", text="y" * 2000))
    assert end.value.ended == "memory_bytes"
    await engine.close()


async def test_the_limits_of_a_budget_reach_the_process() -> None:
    impostors = Impostors(after_ready())
    budget = Budget(memory_bytes=10**8, cpu_seconds=5.0)
    engine = await Engines(starter=impostors).open(program(), budget=budget)
    assert impostors.limits == [JailLimits(memory_bytes=10**8, cpu_seconds=7.0)]
    await engine.close()


class Thread:
    """A process that is a thread here, with the real engine in it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        threading.Thread(target=serve, args=(theirs,), daemon=True).start()

    async def wait(self) -> Death:
        return Death(ended="exit")

    def memory_bytes(self, *, is_peak: bool) -> int:
        return 0

    def kill(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)


class Threads:
    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Thread:
        return Thread()


async def test_the_real_engine_answers_over_a_plain_line_too() -> None:
    engine = await Engines(starter=Threads()).open(program())
    verdicts = await asyncio.gather(*(engine.judge(view(number)) for number in range(100)))
    assert len([verdict for verdict in verdicts if verdict.rows]) == 100
    assert msgspec.msgpack.decode((await engine.change()).added[0][1]) == ["count", {"n": 100}]
    await engine.close()


OLD_KERNEL = """
from sterna.runtime.engine.worker import prepare, serve
from sterna.runtime.cell import seccomp
seccomp.why_not = lambda: 'the kernel has no seccomp filter'
"""


async def test_where_nobody_said_an_engine_is_jailed_if_the_machine_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "old_kernel.py").write_text(OLD_KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    started: list[bool] = []
    for entry in (client.ENTRY, "old_kernel:serve", "old_kernel:serve"):
        monkeypatch.setattr(client, "ENTRY", entry)
        async with Engines(is_jailed=None) as engines:
            engine = await engines.open(program())
            started.append(is_filtered(cast(Cell, engine._channel._process).pid))

    assert started == [not seccomp.why_not(), False, False]
    assert (
        caplog.text.count("without a jail: cannot sandbox a process: the kernel has no seccomp filter") == 1
    )


def is_filtered(pid: int) -> bool:
    return "Seccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()
