"""A small DNS server on a loopback port: addresses from a table, NXDOMAIN for every other name."""

import asyncio
import ipaddress
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_A, _AAAA, _IN = 1, 28, 1
_ANSWER, _NXDOMAIN = 0x8180, 0x8183
_NAME_OF_QUESTION = b"\xc0\x0c"  # a pointer to byte 12 (RFC 1035 4.1.4)


class NameServer(asyncio.DatagramProtocol):
    """Answers for `records`; while `is_silent`, it answers nothing at all."""

    def __init__(self, records: Mapping[str, Sequence[str]], *, ttl: int = 0) -> None:
        self.records = records
        self.ttl = ttl  # c-ares keeps an answer itself, unless it is to be kept for no time
        self.is_silent = False
        self.questions: list[str] = []  # names that somebody asked an A record for
        self.was_asked = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def address(self) -> str:
        assert self._transport
        host, port = self._transport.get_extra_info("sockname")
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _read_name(data, 12)
        kind = int.from_bytes(data[end : end + 2], "big")
        if kind == _A:
            self.questions.append(name)
            self.was_asked.set()
        if self._transport and not self.is_silent:
            self._transport.sendto(self._answer(data[:2], name, kind, question=data[12 : end + 4]), addr)

    def _answer(self, number: bytes, name: str, kind: int, *, question: bytes) -> bytes:
        packed = [ipaddress.ip_address(text).packed for text in self.records.get(name, ())]
        wanted = [each for each in packed if len(each) == {_A: 4, _AAAA: 16}.get(kind)]
        flags = _ANSWER if name in self.records else _NXDOMAIN
        head = number + struct.pack(">HHHHH", flags, 1, len(wanted), 0, 0)
        rows = (
            _NAME_OF_QUESTION + struct.pack(">HHIH", kind, _IN, self.ttl, len(each)) + each for each in wanted
        )
        return head + question + b"".join(rows)


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1
