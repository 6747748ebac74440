"""A server of odd answers: raw bytes for each case, exactly as the case has them."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

CLOSED, RESET = "closed", "reset"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its path behind the name of the case, and its head."""

    rest: str
    host: str
    headers: Mapping[str, str]


Answer = bytes | Callable[[Asked], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An answer under the path of its name, and the text that shows that its page was read."""

    name: str
    answer: Answer
    shows: str
    codes: bytes = b"Tern & gull"  # of that text in the body
    ending: str = CLOSED


@contextmanager
def serve(cases: Mapping[str, Case]) -> Iterator[str]:
    """The server's URL, without a slash at its end; each connection has one answer."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(lambda reader, writer: _answer(cases, reader, writer), "127.0.0.1")

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _answer(
    cases: Mapping[str, Case], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        return
    name, _, rest = head[0].split(" ")[1].lstrip("/").partition("?")[0].partition("/")
    fields = (line.partition(":") for line in head[1:] if line)
    headers = {key.lower(): value.strip() for key, _, value in fields}
    case = cases.get(name)
    if case is None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    elif callable(case.answer):
        writer.write(case.answer(Asked(rest, headers.get("host", ""), headers)))
    else:
        writer.write(case.answer)
    try:
        await writer.drain()
        if case and case.ending == RESET:
            await asyncio.sleep(0.2)  # the client must have read it: a reset throws away what it has not
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    except ConnectionError:
        return  # the client has had enough
    finally:
        writer.close()
