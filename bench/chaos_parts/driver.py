"""One disturbed crawl: strikes its processes and starts again what ended, until the crawl is finished."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from bench.chaos_parts import processes
from bench.chaos_parts.plan import Role, Stroke, choose
from bench.chaos_parts.results import Tally
from bench.chaos_parts.stage import Stage, environment

LOOK_SECONDS = 0.02
WEDGED_SECONDS = 180.0  # after the last stroke, with nothing stopped any more
REST_SECONDS = 30.0  # for processes that end by themselves after the crawl
WAIT_SECONDS = 1.0  # before a run that ended because sites wait is followed by another
FINISHED, STOPPED, WAITING = 0, 3, 4  # exit codes of a crawl


class Wedged(Exception):
    """The crawl does not come to its end."""


@dataclass(slots=True)
class Driver:
    """Plays one round. All of its state is changed by play() and what it calls, in one thread."""

    stage: Stage
    tally: Tally
    plan: Iterator[Stroke]
    most: int  # strokes
    name: str  # of the round, for lines about it
    home: subprocess.Popen[bytes] | None = None
    postmaster: int = 0
    home_at: float = 0.0  # not to be started before
    stopped: dict[int, float] = field(default_factory=dict)  # when each process continues
    struck: list[str] = field(default_factory=list)  # what was done, in order
    killed: set[int] = field(default_factory=set)
    output_at: dict[str, int] = field(default_factory=dict)  # where the output of the last run begins

    def play(self) -> None:
        """Returns when the crawl is finished and its processes are gone; raises Wedged."""
        self.postmaster = self._find_postmaster()
        stroke, due_at = self._next_stroke(time.monotonic())
        last = time.monotonic()
        while not self._is_finished():
            now = time.monotonic()
            if stroke and now >= due_at:
                if self._strike(stroke):
                    stroke, due_at = self._next_stroke(now)
                last = now
            self._continue(now)
            self._restart()
            last = now if self.stopped else last
            if now - last > WEDGED_SECONDS:
                raise Wedged(f"not finished {WEDGED_SECONDS:g} s after the last signal: {self._states()}")
            time.sleep(LOOK_SECONDS)
        self._settle()

    # -- strokes -------------------------------------------------------------------------------------------

    def _next_stroke(self, now: float) -> tuple[Stroke | None, float]:
        if len(self.struck) >= self.most:
            return None, 0.0
        stroke = next(self.plan)
        return stroke, now + stroke.wait_seconds

    def _strike(self, stroke: Stroke) -> bool:
        """False if nobody is there to be struck."""
        present = processes.by_role(processes.look())
        if Role.HOME not in present:
            return False  # between two runs: what is struck then is no part of a crawl
        chosen = choose(stroke, present)
        if chosen is None:
            return False
        role, pid = chosen
        try:
            os.kill(pid, signal.SIGKILL if stroke.is_kill else signal.SIGSTOP)
        except ProcessLookupError:  # it ended in between
            return False
        (self.tally.kills if stroke.is_kill else self.tally.stops)[role] += 1
        done = "KILL" if stroke.is_kill else f"STOP for {stroke.pause_seconds:.2f} s"
        self.struck.append(f"{time.strftime('%H:%M:%S')} {role} {pid}: {done}")
        if stroke.is_kill:
            self.killed.add(pid)
            self.stopped.pop(pid, None)
        else:
            self.stopped[pid] = time.monotonic() + stroke.pause_seconds
        return True

    def _continue(self, now: float) -> None:
        for pid in [pid for pid, until in self.stopped.items() if now >= until]:
            self._let_go(pid)

    def _let_go(self, pid: int) -> None:
        del self.stopped[pid]
        with suppress(ProcessLookupError):  # it was killed by somebody else meanwhile
            os.kill(pid, signal.SIGCONT)

    # -- what is started again -----------------------------------------------------------------------------

    def _is_finished(self) -> bool:
        if self.home is None:
            if time.monotonic() >= self.home_at:
                self._start_home()
            return False
        code = self.home.poll()
        if code is None:
            return False
        pid, self.home = self.home.pid, None
        if code == FINISHED:
            return True
        self.home_at = time.monotonic() + (WAIT_SECONDS if code == WAITING else 0.0)
        if code != WAITING and pid not in self.killed:
            self._fault(f"home ended with {code}: {self._last_words('home.err')}")
        return False

    def _start_home(self) -> None:
        self.tally.runs += 1
        with self._log("home.out") as out, self._log("home.err") as err:
            self.output_at = {"home.out": out.tell(), "home.err": err.tell()}
            self.home = subprocess.Popen(
                self.stage.crawl(), stdout=out, stderr=err, env=environment(), start_new_session=True
            )

    def _restart(self) -> None:
        for host in self.stage.hosts:
            if host.process and (code := host.process.poll()) is not None:
                if host.process.pid not in self.killed:
                    self._fault(f"a host ended with {code}: {self._last_words('host/host.log')}")
                host.start()
        found = processes.look()
        if not any(seen.pid == self.postmaster and seen.state != "Z" for seen in found):
            self._restart_postgres(found)
            found = processes.look()
        awaited = {self.postmaster, *(host.process.pid for host in self.stage.hosts if host.process)}
        processes.bury(found, awaited=awaited | ({self.home.pid} if self.home else set()))

    def _restart_postgres(self, found: list[processes.Seen]) -> None:
        """Kills what is left of it, as a power cut would: a stopped child would delay the start."""
        for pid in processes.by_role(found)[Role.POSTGRES]:
            self.stopped.pop(pid, None)
            with suppress(ProcessLookupError):  # they end by themselves when they learn of it
                os.kill(pid, signal.SIGKILL)
        self.stage.postgres.kill()
        self.stage.postgres.start()
        self.postmaster = self._find_postmaster()

    def _find_postmaster(self) -> int:
        found = processes.look()
        return next(
            seen.pid
            for seen in found
            if seen.parent == os.getpid() and processes.role_of(seen, None) is Role.POSTGRES
        )

    def _has_followers(self) -> bool:
        present = processes.by_role(processes.look())
        return any(present[role] for role in (Role.INDEXER, Role.STORAGE, Role.CONFINED))

    # -- the end -------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Lets everything continue, and waits until followers are gone and PostgreSQL answers."""
        for pid in list(self.stopped):
            self._let_go(pid)
        deadline = time.monotonic() + REST_SECONDS
        while self._has_followers() or not self.stage.has_database():
            if time.monotonic() > deadline:
                raise Wedged(f"not at rest {REST_SECONDS:g} s after the crawl: {self._states()}")
            self._restart()
            time.sleep(LOOK_SECONDS)

    def end(self) -> None:
        """Ends home and hosts if they run; whatever else was theirs must end by itself then."""
        for pid in list(self.stopped):
            self._let_go(pid)
        running = [host.process for host in self.stage.hosts] + [self.home]
        for process in filter(None, running):
            process.kill()
            process.wait()
        self.stage.hosts.clear()
        deadline = time.monotonic() + REST_SECONDS
        while left := self._left():
            if time.monotonic() > deadline:
                self._fault(f"still there {REST_SECONDS:g} s after home and host: {self._states()}")
                for seen in left:
                    with suppress(ProcessLookupError):
                        os.kill(seen.pid, signal.SIGKILL)
                deadline += REST_SECONDS
            processes.bury(left, awaited={self.postmaster})
            time.sleep(LOOK_SECONDS)

    def _left(self) -> list[processes.Seen]:
        """What there is beside PostgreSQL."""
        found = processes.look()
        present = processes.by_role(found)[Role.POSTGRES]
        return [seen for seen in found if seen.pid not in present and seen.pid != self.postmaster]

    def said(self) -> str:
        """What the last run of home printed."""
        files = ((self.stage.folder / name, at) for name, at in self.output_at.items())
        return "".join(path.read_bytes()[at:].decode(errors="replace") for path, at in files)

    # -- words ---------------------------------------------------------------------------------------------

    def _fault(self, words: str) -> None:
        self.tally.faults.append(f"{self.name}: {words}")
        print(f"FAULT {self.name}: {words}", flush=True)

    def _log(self, name: str) -> BinaryIO:
        return (self.stage.folder / name).open("ab")

    def _last_words(self, name: str) -> str:
        lines = (self.stage.folder / name).read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])

    def _states(self) -> str:
        found = processes.look()
        numbered = {seen.pid: seen for seen in found}
        roles = ((processes.role_of(seen, numbered.get(seen.parent)), seen) for seen in found)
        return ", ".join(f"{role} {seen.pid} {seen.state}" for role, seen in roles if role)


def finish_by_hand(stage: Stage) -> None:
    """Runs what home names when its follower was killed; raises CalledProcessError."""
    for command in stage.afterwards():
        subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=120)


def fetch_again(stage: Stage) -> None:
    """Visits every page again, in peace; raises CalledProcessError."""
    command = stage.crawl("--refresh", "0")
    subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=300)
