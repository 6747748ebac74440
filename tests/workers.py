"""Runs the tests in several processes, which are forked once all tests have been collected.

pytest-xdist collects the tests anew in each of its processes: 12 s of CPU in each of four, 22 s if nothing is
compiled yet. Here the forked processes share what was imported and collected.
"""

import json
import os
import selectors
import struct
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

import pytest

Group = list[pytest.Item]
UNTOLD_SECONDS = 60.0  # of a test that is marked as slow and was not measured
_NUMBER = struct.Struct("=I")


class Workers:
    """A pytest plugin: each worker takes one group after another from a pipe and reports to the parent."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest's own loop ends
        groups = _group(session.items)
        queue = _queue(len(groups))
        workers: list[_Worker] = []
        try:
            for _ in range(self._count):
                workers.append(_fork(session, groups, queue, workers))
            _take_reports(session, workers, queue)
        finally:
            os.close(queue)
            for worker in workers:
                worker.end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True


def _group(items: list[pytest.Item]) -> list[Group]:
    """The tests of each file, which may share servers; those that take longest first."""
    groups = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    return sorted(groups, key=lambda group: -sum(map(_seconds, group)))


def _seconds(item: pytest.Item) -> float:
    """What the test took when it was last measured; 0 if it was quick."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", UNTOLD_SECONDS)) if mark else 0.0


def _queue(length: int) -> int:
    """The reading end of a pipe with all numbers below `length`: whoever reads one has it for itself."""
    taking, giving = os.pipe()
    os.write(giving, b"".join(map(_NUMBER.pack, range(length))))
    os.close(giving)
    return taking


def _taken(queue: int) -> Iterator[int]:
    while data := os.read(queue, _NUMBER.size):
        yield _NUMBER.unpack(data)[0]


# -- the parent ----------------------------------------------------------------------------------------------


def _take_reports(session: pytest.Session, workers: "list[_Worker]", queue: int) -> None:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.reports, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.read():
                    selector.unregister(key.fd)
                    key.data.end()
            if session.shouldfail or session.shouldstop:
                for _ in _taken(queue):  # nobody takes another group
                    pass


class _Worker:
    """A forked process, as its parent sees it."""

    def __init__(self, session: pytest.Session, pid: int, reports: int) -> None:
        self.reports = reports
        self._session = session
        self._pid = pid
        # These are changed by read() and end().
        self._line = b""  # that is not whole yet
        self._running = ("tests/workers.py", ("tests/workers.py", None, "a worker"))
        self._is_over = False

    def read(self) -> bool:
        """Hands on what has arrived; False at the end."""
        data = os.read(self.reports, 65536)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(data)

    def _take(self, said: dict[str, Any]) -> None:
        hook = self._session.config.hook
        match said:
            case {"started": [nodeid, location]}:
                self._running = nodeid, tuple(location)
                hook.pytest_runtest_logstart(nodeid=nodeid, location=tuple(location))
            case {"report": data}:
                report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
                if isinstance(report.longrepr, list):  # why it was skipped; a tuple before it was JSON
                    report.longrepr = tuple(report.longrepr)
                hook.pytest_runtest_logreport(report=report)
            case {"warning": [text, filename, line], "nodeid": nodeid, "when": when}:
                message = warnings.WarningMessage(UserWarning(text), UserWarning, filename, line)
                kwargs = {"warning_message": message, "nodeid": nodeid, "when": when, "location": None}
                hook.pytest_warning_recorded.call_historic(kwargs=kwargs)

    def end(self) -> None:
        """Waits for the process; if it did not end by itself, the test that it ran has failed."""
        if self._is_over:
            return
        self._is_over = True
        os.close(self.reports)  # whoever still writes to it ends
        if status := os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]):
            words = f"the worker ended with status {status}"
            report = pytest.TestReport(*self._running, {}, "failed", words, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)


# -- a worker ------------------------------------------------------------------------------------------------


def _fork(session: pytest.Session, groups: list[Group], queue: int, others: list[_Worker]) -> _Worker:
    # The folder is asked for here, so that one process removes those of old runs.
    folder = session.config._tmp_path_factory.getbasetemp() / f"worker{len(others)}"  # type: ignore[attr-defined]
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        for each in (reading, *(other.reports for other in others)):  # or it would outlive its parent
            os.close(each)
        _run(session, (groups[place] for place in _taken(queue)), os.fdopen(writing, "w"), folder)
    os.close(writing)
    return _Worker(session, pid, reading)


class _Reporter:
    """A pytest plugin that writes what happens in a worker as lines of JSON."""

    def __init__(self, config: pytest.Config, reports: IO[str]) -> None:
        self._config = config
        self._reports = reports

    def _write(self, said: dict[str, Any]) -> None:
        self._reports.write(json.dumps(said, default=str) + "\n")
        self._reports.flush()

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._write({"started": [nodeid, location]})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._write({"report": data})

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: Literal["config", "collect", "runtest"],
        nodeid: str,
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        place = [text, warning_message.filename, warning_message.lineno]
        self._write({"warning": place, "nodeid": nodeid, "when": when})


def _run(session: pytest.Session, groups: Iterator[Group], reports: IO[str], folder: Path) -> NoReturn:
    """Runs groups of tests until there are no more; the process ends here."""
    status = 1
    try:
        _separate(session.config, reports, folder)
        for group in groups:
            # The last one takes down what the tests of the file share, but not what all tests share.
            for item, following in zip(group, (*group[1:], session), strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = 0
    finally:
        session._setupstate.teardown_exact(None)
        reports.close()
        os._exit(status)


def _separate(config: pytest.Config, reports: IO[str], folder: Path) -> None:
    """The worker's own output, temporary folder and reports; the terminal is the parent's."""
    plugins = config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    assert capture
    capture.stop_global_capturing()
    capture.start_global_capturing()
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, reports))
