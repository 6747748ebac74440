"""The conformance suite of transports: every implementation passes it (see test_http_transport)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import get_args

import pytest
from tests.transport.serving import Answerer, Cut, Said, Saying, refusing

from sterna.errors import LineBroken, Refused, WireError
from sterna.transport.interface import PUBLIC, Call, Op, Reply, Transport, read_whole
from sterna.wire.problems import PROBLEM_TYPE

MIB = 1 << 20
SILENCE_SECONDS = 1.0  # that the transports under test bear
SOON_SECONDS = 20.0

# A transport whose calls to the address reach the answerer.
Join = Callable[[Answerer], AbstractAsyncContextManager[tuple[Transport, str]]]


async def whole(transport: Transport, address: str, call: Call, *, most: int = 64 * MIB) -> bytes:
    async with asyncio.timeout(SOON_SECONDS), transport.exchange(address, call) as answer:
        return await read_whole(answer.chunks, most=most)


def always(said: Said) -> Answerer:
    async def answer(call: Call) -> Said:
        return said

    return answer


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_SECONDS):
        while not is_so():  # noqa: ASYNC110 - the other side has no event for it
            await asyncio.sleep(0.01)


class Endless:
    """A stream without an end, and what became of it."""

    def __init__(self, piece: bytes = bytes(64 * 1024), *, pause_seconds: float = 0.0) -> None:
        self._piece = piece
        self._pause_seconds = pause_seconds
        self.made_bytes = 0
        self.is_closed = False

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.made_bytes += len(self._piece)
                yield self._piece
                await asyncio.sleep(self._pause_seconds)
        finally:
            self.is_closed = True


async def silent() -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.Event().wait()


class TransportSuite:
    """To be subclassed with the fixtures `join` and `nowhere`, an address at which nobody is."""

    @pytest.fixture
    def join(self) -> Join:
        raise NotImplementedError

    # -- what goes well

    @pytest.mark.parametrize("op", get_args(Op))
    async def test_call_arrives_as_it_was_sent(self, join: Join, op: Op) -> None:
        calls: list[Call] = []

        async def answer(call: Call) -> Said:
            calls.append(call)
            return Saying(b"answer to " + call.op.encode())

        body = b"" if op in PUBLIC else bytes(range(256))
        async with join(answer) as (transport, address):
            assert await whole(transport, address, Call(op, body)) == b"answer to " + op.encode()
        assert calls == [Call(op, body)]

    async def test_large_bodies_go_both_ways(self, join: Join) -> None:
        body = hashlib.shake_128(b"there").digest(9 * MIB)
        back = hashlib.shake_128(b"back").digest(33 * MIB)

        async def answer(call: Call) -> Said:
            assert call.body == body
            return Saying(back)

        async with join(answer) as (transport, address):
            assert await whole(transport, address, Call("order", body)) == back

    async def test_empty_answer_is_one(self, join: Join) -> None:
        async with join(always(Saying(b""))) as (transport, address):
            assert await whole(transport, address, Call("acknowledge", b"x")) == b""

    async def test_stream_is_read_while_it_is_made(self, join: Join) -> None:
        was_read = asyncio.Event()

        async def stream() -> AsyncIterator[bytes]:
            yield b"one"
            await was_read.wait()
            yield b"two"

        async with (
            join(always(Saying(stream()))) as (transport, address),
            asyncio.timeout(SOON_SECONDS),
            transport.exchange(address, Call("order", b"x")) as answer,
        ):
            assert await anext(answer.chunks) == b"one"
            was_read.set()
            assert [chunk async for chunk in answer.chunks] == [b"two"]

    async def test_long_stream_comes_whole_and_in_order(self, join: Join) -> None:
        pieces = [hashlib.shake_128(b"%d" % number).digest(number) for number in range(1, 3000)]

        async def stream() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        async with join(always(Saying(stream()))) as (transport, address):
            assert await whole(transport, address, Call("order", b"x")) == b"".join(pieces)

    async def test_slow_stream_is_no_silence(self, join: Join) -> None:
        async def stream() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield b"."
                await asyncio.sleep(SILENCE_SECONDS / 4)

        async with join(always(Saying(stream()))) as (transport, address):
            assert await whole(transport, address, Call("order", b"x")) == b"." * 8

    async def test_reader_may_take_its_time(self, join: Join) -> None:
        async def stream() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield bytes(64 * 1024)

        async with (
            join(always(Saying(stream()))) as (transport, address),
            transport.exchange(address, Call("order", b"x")) as answer,
        ):
            size = len(await anext(answer.chunks))
            await asyncio.sleep(1.5 * SILENCE_SECONDS)
            size += len(await read_whole(answer.chunks, most=8 * MIB))
        assert size == 4 * MIB

    async def test_seconds_are_those_until_the_answer_began(self, join: Join) -> None:
        async def answer(call: Call) -> Said:
            await asyncio.sleep(0.1)
            return Saying(b"late")

        async with (
            join(answer) as (transport, address),
            transport.exchange(address, Call("hello", b"x")) as came,
        ):
            assert 0.09 < came.seconds < 5

    async def test_max_age_is_told(self, join: Join) -> None:
        said = Saying(b"{}", headers=(("Cache-Control", "max-age=77"),))
        async with (
            join(always(said)) as (transport, address),
            transport.exchange(address, Call("discover")) as answer,
        ):
            assert answer.max_age == 77.0

    async def test_many_calls_at_once_get_their_own_answers(self, join: Join) -> None:
        async def answer(call: Call) -> Said:
            await asyncio.sleep(0.01)
            return Saying(call.body[::-1])

        async with join(answer) as (transport, address):
            bodies = [b"call %d" % number for number in range(100)]
            answers = await asyncio.gather(
                *(whole(transport, address, Call("hello", body)) for body in bodies)
            )
        assert answers == [body[::-1] for body in bodies]

    # -- refusals

    async def test_problem_is_a_refusal_with_all_it_says(self, join: Join) -> None:
        said = refusing("busy", "the queue is full", retry_after=7)
        async with join(always(said)) as (transport, address):
            with pytest.raises(Refused, match="queue is full") as error:
                await whole(transport, address, Call("order", b"x"))
        assert (error.value.problem, error.value.retry_after) == ("busy", 7)

    async def test_stale_tells_the_other_clock(self, join: Join) -> None:
        async with join(always(refusing("stale", time=1234.5))) as (transport, address):
            with pytest.raises(Refused) as error:
                await whole(transport, address, Call("hello", b"x"))
        assert (error.value.problem, error.value.time) == ("stale", 1234.5)

    @pytest.mark.parametrize(
        "body", [b"", b"{}", b"\xff\x00garbage", b'{"type": "about:blank"}', b"[" * 9999]
    )
    async def test_refusal_that_nobody_can_read_is_one_all_the_same(self, join: Join, body: bytes) -> None:
        async with join(always(Saying(body, 400, PROBLEM_TYPE))) as (transport, address):
            with pytest.raises(Refused) as error:
                await whole(transport, address, Call("hello", b"x"))
        assert error.value.problem == "http"

    async def test_page_for_people_is_a_refusal(self, join: Join) -> None:
        async with join(always(Saying(b"<h1>Not here</h1>", 404, "text/html"))) as (transport, address):
            with pytest.raises(Refused) as error:
                await whole(transport, address, Call("discover"))
        assert error.value.problem == "http"

    async def test_endless_refusal_is_not_read_to_its_end(self, join: Join) -> None:
        stream = Endless(b'{"type": "')
        async with join(always(Saying(stream(), 400, PROBLEM_TYPE))) as (transport, address):
            with pytest.raises(Refused):
                await whole(transport, address, Call("hello", b"x"))
            await until(lambda: stream.is_closed)
        assert stream.made_bytes < 32 * MIB

    @pytest.mark.parametrize("status", [502, 503, 504])
    async def test_gateway_without_a_host_is_a_broken_line(self, join: Join, status: int) -> None:
        async with join(always(Saying(b"Bad Gateway", status, "text/html"))) as (transport, address):
            with pytest.raises(LineBroken):
                await whole(transport, address, Call("hello", b"x"))

    # -- what breaks

    async def test_nobody_there_is_a_broken_line(self, join: Join, nowhere: str) -> None:
        async with join(always(Saying())) as (transport, _):
            with pytest.raises(LineBroken):
                await whole(transport, nowhere, Call("hello", b"x"))

    async def test_cut_before_the_answer_is_a_broken_line(self, join: Join) -> None:
        async def answer(call: Call) -> Said:
            raise Cut

        async with join(answer) as (transport, address):
            with pytest.raises(LineBroken):
                await whole(transport, address, Call("hello", b"x"))

    @pytest.mark.parametrize("pieces", [0, 1, 40])
    async def test_cut_in_the_middle_is_seen_after_what_came(self, join: Join, pieces: int) -> None:
        async def stream() -> AsyncIterator[bytes]:
            for _ in range(pieces):
                yield bytes(8 * 1024)
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)  # what was sent arrives: the cut is not to overtake it
            raise Cut

        received = 0
        async with join(always(Saying(stream()))) as (transport, address):
            with pytest.raises(LineBroken):
                async with transport.exchange(address, Call("order", b"x")) as answer:
                    async for chunk in answer.chunks:
                        received += len(chunk)
        assert received == pieces * 8 * 1024

    async def test_server_that_never_answers_is_a_broken_line(self, join: Join) -> None:
        async def answer(call: Call) -> Said:
            await asyncio.Event().wait()
            raise AssertionError

        async with join(answer) as (transport, address):
            with pytest.raises(LineBroken):
                await whole(transport, address, Call("hello", b"x"))

    async def test_stream_that_falls_silent_is_a_broken_line(self, join: Join) -> None:
        received = b""
        async with join(always(Saying(silent()))) as (transport, address):
            with pytest.raises(LineBroken):
                async with (
                    asyncio.timeout(SOON_SECONDS),
                    transport.exchange(address, Call("order")) as answer,
                ):
                    async for chunk in answer.chunks:
                        received += chunk
        assert received == b"first"

    async def test_giant_answer_is_left_when_it_is_too_long(self, join: Join) -> None:
        stream = Endless()
        async with join(always(Saying(stream()))) as (transport, address):
            with pytest.raises(WireError, match="too-large"):
                await whole(transport, address, Call("hello", b"x"), most=MIB)
            await until(lambda: stream.is_closed)
        assert stream.made_bytes < 32 * MIB

    async def test_reply_that_comes_byte_by_byte_is_given_up(self, join: Join) -> None:
        stream = Endless(b".", pause_seconds=0.05)
        async with (
            join(always(Saying(stream()))) as (transport, address),
            transport.exchange(address, Call("order", b"x")) as answer,
        ):
            with pytest.raises(LineBroken, match=r"not complete within 0\.3 seconds"):
                await read_whole(answer.chunks, most=MIB, seconds=0.3)

    async def test_broken_call_does_no_harm_to_the_next(self, join: Join) -> None:
        async def answer(call: Call) -> Said:
            if call.body == b"break":
                raise Cut
            return Saying(b"fine")

        async with join(answer) as (transport, address):
            for _ in range(3):
                with pytest.raises(LineBroken):
                    await whole(transport, address, Call("hello", b"break"))
                assert await whole(transport, address, Call("hello", b"x")) == b"fine"

    # -- who holds whom

    async def test_slow_reader_holds_the_sender(self, join: Join) -> None:
        stream = Endless()
        async with (
            join(always(Saying(stream()))) as (transport, address),
            transport.exchange(address, Call("order", b"x")) as answer,
        ):
            await anext(answer.chunks)
            before = -1
            while stream.made_bytes != before:  # until nothing more can be sent
                before = stream.made_bytes
                await asyncio.sleep(0.2)
            assert before < 24 * MIB  # the kernel's buffers of a connection hold some of it
            seen = 0
            async for chunk in answer.chunks:
                seen += len(chunk)
                if seen > before + 8 * MIB:
                    break
            assert stream.made_bytes > before

    async def test_leaving_ends_the_call_there_too(self, join: Join) -> None:
        stream = Endless(b"tick", pause_seconds=0.01)
        async with join(always(Saying(stream()))) as (transport, address):
            async with transport.exchange(address, Call("order", b"x")) as answer:
                assert await anext(answer.chunks)
            await until(lambda: stream.is_closed)

    async def test_cancelling_ends_the_call_there_too(self, join: Join) -> None:
        stream = Endless(b"tick", pause_seconds=0.01)
        is_reading = asyncio.Event()

        async def read(answer: Reply) -> None:
            async for _ in answer.chunks:
                is_reading.set()

        async def ask(transport: Transport, address: str) -> None:
            async with transport.exchange(address, Call("order", b"x")) as answer:
                await read(answer)

        async with join(always(Saying(stream()))) as (transport, address):
            task = asyncio.create_task(ask(transport, address))
            await is_reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: stream.is_closed)

    async def test_closing_breaks_the_lines_that_are_open(self, join: Join) -> None:
        stream = Endless(b"tick", pause_seconds=0.01)
        async with join(always(Saying(stream()))) as (transport, address):
            with pytest.raises(LineBroken):
                async with transport.exchange(address, Call("order", b"x")) as answer:
                    await anext(answer.chunks)
                    await transport.close()
                    async for _ in answer.chunks:
                        pass
            await until(lambda: stream.is_closed)
