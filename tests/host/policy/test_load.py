"""The load policy: what is measured, when a visit rests and goes on, and that with a real busy process."""

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.host.knocking import GatedSite, Stream, limits_of, open_home, send, until

from sterna.host.policy import load as load_module
from sterna.host.policy.load import Governor, Load, LoadMeter, MachineTimes, family_of, probe, read_machine
from sterna.host.policy.policy import LoadRules, Policy
from sterna.host.site.upstream import Upstream
from sterna.host.visiting import overseer
from sterna.model import Budget
from sterna.wire.orders import Look

# -- measuring ---------------------------------------------------------------------------------------------


class Machine:
    """Two cores with a hundred ticks a second each, of which others and we take a share."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.busy = self.own = 0.0

    def pass_seconds(self, seconds: float, *, others: float, own: float = 0.0) -> None:
        self.time += seconds
        self.busy += (others + own) * 200 * seconds
        self.own += own * 200 * seconds

    def read(self) -> MachineTimes:
        return MachineTimes(total=self.time * 200, busy=self.busy, own=self.own)

    def now(self) -> float:
        return self.time


async def test_only_what_others_take_is_counted() -> None:
    machine = Machine()
    meter = LoadMeter(machine=machine.read, now=machine.now)
    assert (await meter.measure()).machine is None  # there is nothing to compare with yet
    machine.pass_seconds(1, others=0.1, own=0.9)
    assert (await meter.measure()).machine == pytest.approx(0.1)
    assert str(meter.load) == "other work takes 10% of the machine"


async def test_load_is_smoothed_over_some_seconds() -> None:
    machine = Machine()
    meter = LoadMeter(machine=machine.read, now=machine.now)
    await meter.measure()
    machine.pass_seconds(10, others=0.0)
    await meter.measure()
    machine.pass_seconds(1, others=1.0)
    first = (await meter.measure()).machine
    assert first is not None
    assert 0.2 < first < 0.4
    for _ in range(9):
        machine.pass_seconds(1, others=1.0)
        await meter.measure()
    assert meter.load.machine == pytest.approx(1.0, abs=0.05)


async def test_time_that_died_with_a_process_and_clocks_that_stand_are_survived() -> None:
    machine = Machine()
    meter = LoadMeter(machine=machine.read, now=machine.now)
    await meter.measure()
    machine.pass_seconds(1, others=0.5)
    machine.own -= 100
    assert (await meter.measure()).machine == pytest.approx(0.5)
    assert (await meter.measure()).machine == pytest.approx(0.5)  # within one tick
    machine.busy -= 1000
    machine.pass_seconds(1, others=0.0)
    assert (await meter.measure()).machine is not None


async def test_machine_that_says_nothing_is_not_looked_at() -> None:
    meter = LoadMeter(machine=lambda: None)
    await meter.measure()
    assert str(await meter.measure()) == "not measured"
    assert not Governor(LoadRules(machine=0.01)).judge(meter.load)


async def test_slow_answers_count_beyond_the_calm_ones() -> None:
    answers = iter([0.010, 0.011, 0.012, 0.080, 0.090, 0.100, math.inf, math.inf, 0.010, 0.010])

    async def probe() -> float:
        return next(answers)

    meter = LoadMeter(machine=lambda: None, probe=probe)
    seen = [(await meter.measure(has_probe=True)).latency_ms for _ in range(10)]
    assert seen[:3] == [0.0, pytest.approx(0.5), pytest.approx(1.0)]
    assert seen[5] == pytest.approx(80.0)
    assert seen[7] == math.inf
    assert "does not answer" in str(Load(latency_ms=math.inf))
    assert seen[9] == pytest.approx(0.0)


def test_who_rests_goes_on_well_below_the_bound() -> None:
    governor = Governor(LoadRules(machine=0.5, latency_ms=100))
    assert governor.judge(Load(machine=0.5, latency_ms=100)) == ""
    assert "60% of the machine" in governor.judge(Load(machine=0.6))
    assert governor.judge(Load(machine=0.45))
    assert not governor.judge(Load(machine=0.39))
    assert not governor.judge(Load(machine=0.45))
    assert governor.judge(Load(latency_ms=101))
    assert governor.judge(Load(latency_ms=81))
    assert not governor.judge(Load(latency_ms=79))


def test_bound_of_0_is_not_looked_at() -> None:
    governor = Governor(LoadRules(machine=0.0, latency_ms=0.0))
    assert not governor.judge(Load(machine=1.0, latency_ms=math.inf))


def test_linux_tells_what_the_machine_and_we_do() -> None:
    before = read_machine()
    assert before
    end = os.times().user + 0.3
    while os.times().user < end:
        pass
    after = read_machine()
    assert after
    assert after.total > before.total
    is_niced = os.getpriority(os.PRIO_PROCESS, 0) > 0
    assert after.own >= before.own + (0 if is_niced else 20)


def test_family_is_all_below_a_process() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    try:
        for _ in range(200):
            family = family_of(child.pid)
            if len(family) == 2:
                break
            subprocess.run(["sleep", "0.05"], check=True)
        assert family[0] == child.pid
        assert len(family) == 2
        assert set(family) <= set(family_of(os.getpid()))
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_who_gives_way_runs_only_when_a_core_is_idle_and_so_do_its_children() -> None:
    program = (
        "import os, subprocess, sys, threading\nfrom sterna.host.policy.load import give_way\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\ngive_way()\n"
        "tell = 'import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))'\n"
        "for task in os.listdir('/proc/self/task'):\n"
        "    task = int(task)\n"
        "    print(os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task), flush=True)\n"
        "subprocess.run([sys.executable, '-c', tell], check=True)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"{os.SCHED_IDLE} 19"] * 3


# -- the probe ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(
    reply: bytes, *, seconds: float = 0.0
) -> AsyncIterator[tuple[Callable[[], Awaitable[float]], list[bytes]]]:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await asyncio.sleep(seconds)
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        upstream = Upstream("http", "127.0.0.1", port)
        yield partial(probe, "https://www.example.org", upstream, "/front"), asked


async def test_probe_asks_by_the_sites_name_and_takes_the_time() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", seconds=0.05) as (ask, asked):
        assert 0.05 <= await ask() < 2.0
        assert asked[0].startswith(b"GET /front HTTP/1.1\r\nHost: www.example.org\r\n")


@pytest.mark.parametrize("reply", [b"HTTP/1.1 503 Busy\r\n\r\n", b"", b"nonsense\r\n\r\n", b"x" * 100_000])
async def test_server_that_has_no_time_is_infinitely_slow(reply: bytes) -> None:
    async with answering(reply) as (ask, _):
        assert await ask() == math.inf


async def test_server_that_is_not_there_or_keeps_silent_is_infinitely_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_module, "PROBE_SECONDS", 0.05)
    assert await probe("http://x", Upstream("http", "127.0.0.1", 1), "/") == math.inf
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", seconds=1.0) as (ask, _):
        assert await ask() == math.inf


# -- a visit rests and goes on -----------------------------------------------------------------------------


class Scripted(LoadMeter):
    """Gives the load that a test sets."""

    def __init__(self) -> None:
        super().__init__(machine=lambda: None)
        self.load = Load(machine=0.0)

    async def measure(self, *, has_probe: bool = False) -> Load:
        return self.load


def policy(**fields: object) -> Policy:
    return msgspec.convert(fields, Policy)


async def test_busy_machine_makes_a_visit_rest_and_its_home_hears_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    site, meter = GatedSite(), Scripted()
    async with open_home(tmp_path, site=site, policy=policy(), serving={"meter": meter}) as home:
        reply, session = await home.order(send(budget=Budget(seconds=5.0)))
        stream = Stream(reply, session)
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        meter.load = Load(machine=0.9)
        await until(lambda: home.service.status().visits[0].paused == "the site is busy")
        asked = len(site.asked)
        site.let(12)
        await asyncio.sleep(0.3)
        assert len(site.asked) == asked  # those under way came to their end, and no other began
        status = home.service.status()
        assert (status.paused, status.load) == ("the site is busy", "other work takes 90% of the machine")
        assert (await home.report(Look("v1"))).state == "running"
        meter.load = Load(machine=0.1)
        await reading
        assert stream.ending.ended == "finished"
        assert stream.ending.pages == 13
        assert [line for line in stream.lines if line.startswith("paused:")] == ["paused: the site is busy"]
        assert "resumed: it goes on" in stream.lines


async def test_rest_is_not_of_the_visits_time_but_has_its_own_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    site, meter = GatedSite(), Scripted()
    limits = limits_of(deferred_seconds=1.5)
    async with open_home(tmp_path, site=site, limits=limits, serving={"meter": meter}) as home:
        reply, session = await home.order(send(budget=Budget(seconds=1.0)))
        stream = Stream(reply, session)
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        site.let(2)
        meter.load = Load(machine=0.9)
        await asyncio.sleep(1.3)
        assert not reading.done()
        site.let(10)
        await asyncio.wait_for(reading, 10)
        assert stream.ending.ended == "budget"  # home goes on with it
        assert any("has rested for as long as a visit may" in line for line in stream.lines)


async def test_home_may_have_bounds_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    site, meter = GatedSite(), Scripted()
    rules = policy(homes={"ada": {"load": {"machine": 0.0}}})
    async with open_home(tmp_path, site=site, policy=rules, serving={"meter": meter}) as home:
        meter.load = Load(machine=1.0)
        site.let(12)
        assert (await home.visit(send())).ending.ended == "finished"


@contextmanager
def busy_machine() -> Iterator[None]:
    """Processes that are none of ours keep every core busy, at the usual priority."""
    spin = "import os\nos.nice(-os.nice(0)) if os.geteuid() == 0 else None\nwhile True: pass"
    count = os.cpu_count() or 1
    # Their parent ends at once, and so nobody below us has them.
    starting = 'for _ in $(seq "$1"); do "$2" -c "$3" >/dev/null 2>&1 & echo $!; done'
    command = ["sh", "-c", starting, "sh", str(count), sys.executable, spin]
    pids = [int(pid) for pid in subprocess.run(command, capture_output=True, check=True).stdout.split()]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


async def load_of_the_machine() -> float:
    meter = LoadMeter()
    await meter.measure()
    await asyncio.sleep(1.0)
    return (await meter.measure()).machine or 0.0


@pytest.mark.alone
async def test_real_load_makes_a_real_visit_rest_and_it_goes_on_when_the_load_is_gone(tmp_path: Path) -> None:
    if os.geteuid() and os.getpriority(os.PRIO_PROCESS, 0) > 0:
        pytest.skip("what is niced does not count, and only root can make others that are not")
    serving = {"meter": LoadMeter()}
    if await load_of_the_machine() > 0.3:
        pytest.skip("other work keeps the machine busy: the visit would rest before the test makes it")
    # The visit itself works at the usual priority here, and leaves less to others than a real host does.
    rules = policy(load={"machine": 0.6}, delay_seconds=0.05, connections=1)
    async with open_home(tmp_path, pages=120, policy=rules, serving=serving) as home:
        reply, session = await home.order(send())
        stream = Stream(reply, session)
        reading = asyncio.create_task(stream.read())
        await until(lambda: home.service.status().visits[0].requests > 3)
        with busy_machine():
            await until(lambda: bool(home.service.status().visits[0].paused))
            resting = home.service.status().visits[0].requests
            await asyncio.sleep(1.0)
            assert home.service.status().visits[0].requests == resting
        await until(lambda: not home.service.status().visits[0].paused)
        await asyncio.wait_for(reading, 30)
        assert stream.ending.pages == 121
