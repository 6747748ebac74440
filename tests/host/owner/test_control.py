"""The control socket: what an owner asks of a host that runs, and who else may not."""

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from sterna.errors import LineBroken, StorageError
from sterna.host.owner.control import (
    CONTROL,
    Closure,
    ControlRequest,
    ControlResponse,
    ask,
    meant,
    open_control,
)
from sterna.host.owner.status import HostStatus, VisitStatus
from sterna.model import Budget


def visit(id: str, crawler: str = "health", state: str = "running") -> VisitStatus:
    return VisitStatus(
        visit=id,
        home="ed25519:x",
        name="ada",
        crawler=crawler,
        state=state,
        since=10.0,
        limits=Budget(pages=7),
    )


class Host:
    """Knows three visits, and which of them were stopped."""

    def __init__(self) -> None:
        self.visits = (visit("v1"), visit("v2"), visit("v3", "other"), visit("v4", state="finished"))
        self.stopped: list[str] = []
        self.trouble: Exception | None = None

    def status(self) -> HostStatus:
        if self.trouble:
            raise self.trouble
        return HostStatus(
            site="http://site.test", version="1", began=0.0, now=20.0, pid=1, visits=self.visits
        )

    async def stop_visits(self, wanted: Sequence[VisitStatus], closure: Closure) -> tuple[VisitStatus, ...]:
        self.stopped += [each.visit for each in wanted]
        return tuple(wanted)

    async def stop_all(self) -> int:
        self.stopped += [each.visit for each in self.visits]
        return len(self.visits)


async def asked(state: Path, question: ControlRequest) -> ControlResponse:
    return await asyncio.to_thread(ask, state, question)


async def test_status_comes_as_it_is(tmp_path: Path) -> None:
    host = Host()
    async with open_control(host, tmp_path):
        assert (tmp_path / CONTROL).stat().st_mode & 0o777 == 0o600
        assert (await asked(tmp_path, ControlRequest("status"))).status == host.status()
    assert not (tmp_path / CONTROL).exists()


async def test_crawler_is_stopped_by_its_id_or_its_name(tmp_path: Path) -> None:
    host = Host()
    async with open_control(host, tmp_path):
        assert [each.visit for each in (await asked(tmp_path, ControlRequest("stop", "v3"))).stopped] == [
            "v3"
        ]
        assert (await asked(tmp_path, ControlRequest("stop", "health"))).count == 2
        assert (await asked(tmp_path, ControlRequest("stop", "nobody"))).count == 0
        assert host.stopped == ["v3", "v1", "v2"]
        assert (await asked(tmp_path, ControlRequest("stop-all"))).count == 4


def test_id_comes_before_a_name_that_is_the_same() -> None:
    status = HostStatus(
        site="s", version="1", began=0.0, now=0.0, pid=1, visits=(visit("v1", "v2"), visit("v2", "v1"))
    )
    assert [each.visit for each in meant(status, "v2")] == ["v2"]


async def test_error_of_the_host_is_told(tmp_path: Path) -> None:
    host = Host()
    host.trouble = StorageError("the audit log cannot be written")
    async with open_control(host, tmp_path):
        with pytest.raises(LineBroken, match="the audit log cannot be written"):
            await asked(tmp_path, ControlRequest("status"))


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b'{"ask":"format-disk"}\n',
        b"\xff\xfe\n",
        b'{"ask":"status","x":1}\n',
        b"[" * 3000 + b"\n",
    ],
)
async def test_questions_that_cannot_be_are_answered_so(tmp_path: Path, line: bytes) -> None:
    async with open_control(Host(), tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / CONTROL))
        writer.write(line)
        answer = json.loads(await asyncio.wait_for(reader.read(), 10))
        writer.close()
        assert answer["error"].startswith("invalid request")
        assert (await asked(tmp_path, ControlRequest("status"))).status


async def test_line_without_end_is_hung_up_on(tmp_path: Path) -> None:
    async with open_control(Host(), tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / CONTROL))
        writer.write(b"x" * 100_000)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_socket_of_a_killed_host_is_in_nobodys_way(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / CONTROL))
    with pytest.raises(LineBroken, match="no host answers"):
        await asked(tmp_path, ControlRequest("status"))
    async with open_control(Host(), tmp_path):
        assert (await asked(tmp_path, ControlRequest("status"))).status


async def test_folder_may_lie_deep(tmp_path: Path) -> None:
    state = tmp_path / "/".join(["a" * 60] * 3)
    state.mkdir(parents=True)
    async with open_control(Host(), state):
        assert (await asked(state, ControlRequest("status"))).status


def test_no_host_answers_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(LineBroken, match="no host answers"):
        ask(tmp_path, ControlRequest("status"))
    with pytest.raises(LineBroken, match="no host answers"):
        ask(tmp_path / "nowhere", ControlRequest("status"))
