"""The loop inside an engine's process: what it answers, and how it ends when nothing can be answered."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.runtime.engine.running import start_of

from sterna.model import Links, State, StateChange, Target
from sterna.runtime.cell import frame
from sterna.runtime.cell.frame import HEAD_BYTES, frame_size
from sterna.runtime.engine.messages import (
    MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES,
    Admit,
    Admitted,
    Change,
    Changed,
    EngineReply,
    EngineRequest,
    Judge,
    Over,
    PageView,
    Ready,
    Verdicts,
    read_reply,
)
from sterna.runtime.engine.worker import serve

RULES = (
    '(defrule a (page (title "yes")) => (keep) (assert (seen))) (defrule b (request (depth 9)) => (refuse x))'
)


def framed(message: EngineRequest | EngineReply) -> bytearray:
    return frame.framed(message, most_bytes=MAX_REQUEST_BYTES)


class Talk:
    """A host that asks by hand."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def ask(self, question: EngineRequest) -> EngineReply:
        self._sock.sendall(framed(question))
        return self.hear()

    def say(self, data: bytes) -> EngineReply:
        self._sock.sendall(data)
        return self.hear()

    def hear(self) -> EngineReply:
        return read_reply(self._read(frame_size(self._read(HEAD_BYTES), most_bytes=MAX_REPLY_BYTES)))

    def is_over(self) -> bool:
        return self._sock.recv(1) == b""

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            assert more, "the line ended"
            data += more
        return data


@contextmanager
def talking() -> Iterator[Talk]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)

    def live() -> None:
        with theirs:
            serve(theirs)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    with ours:
        yield Talk(ours)
    thread.join(20)
    assert not thread.is_alive()


def test_questions_are_answered_in_their_order() -> None:
    with talking() as talk:
        ready = talk.ask(start_of(RULES))
        assert isinstance(ready, Ready)
        assert ready.asks_before_fetch
        verdicts = talk.ask(Judge((PageView(url="a", title="yes"), PageView(url="b"))))
        assert isinstance(verdicts, Verdicts)
        assert [verdict.is_kept for verdict in verdicts.verdicts] == [True, None]
        assert verdicts.cpu_seconds > 0
        admitted = talk.ask(Admit((Target("x", 9), Target("x"), Target("y", 9))))
        assert isinstance(admitted, Admitted)
        assert admitted.admits == (False, True, True)
        changed = talk.ask(Change())
        assert isinstance(changed, Changed)
        assert [number for number, _ in changed.change.added] == [1]


def test_rules_that_cannot_be_read_end_it_with_the_reason() -> None:
    with talking() as talk:
        over = talk.ask(start_of("(defrule a (page) => (system))"))
        assert over == Over("rules", "rules.clp:1: defrule a: Missing function declaration for 'system'.")
        assert talk.is_over()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x05hello",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        framed(Judge(())),
        framed(Change()),
        b"\x00\x00\x00\x02\xc1\xc1",
        b"\x00\x01\x00\x00" + b"\x91" * 65536,
    ],
)
def test_garbage_ends_it_with_the_reason(garbage: bytes) -> None:
    with talking() as talk:
        over = talk.say(garbage)
        assert isinstance(over, Over)
        assert over.ended == "crash"
        assert "message" in over.detail
        assert talk.is_over()


def test_a_second_start_ends_it() -> None:
    with talking() as talk:
        talk.ask(start_of(RULES))
        assert talk.ask(start_of(RULES)) == Over("crash", "a second start")


def test_a_line_that_ends_ends_it() -> None:
    with talking() as talk:
        assert isinstance(talk.ask(start_of(RULES)), Ready)
    with talking():
        pass


def test_records_cross_the_line_unchanged() -> None:
    view = PageView(
        url="u",
        site="s",
        status=200,
        error="e",
        depth=2,
        referrer="r",
        content_type="c",
        size=3,
        title="t",
        description="d",
        language="l",
        selected=False,
        keywords=("k",),
        headings=("h",),
        text="x",
        html="y",
        links=Links("a\nb", "A"),
        extracts=(("n", ("1", "2")),),
    )
    start = start_of(RULES, state=State(((1, b"x"),), b"m"), facts=[b"f"])
    for question in (start, Judge((view,)), Admit((Target("u", 1, "r", priority=2),)), Change()):
        assert msgspec.msgpack.decode(framed(question)[HEAD_BYTES:], type=EngineRequest) == question
    answer = Changed(StateChange(((1, b"a"),), (2,), b"m"), 1.5)
    assert read_reply(bytes(framed(answer)[HEAD_BYTES:])) == answer
