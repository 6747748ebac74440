"""One request to an ASGI application, without a server between."""

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.web.http_app import App, Message


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    app: App,
    target: str,
    *,
    method: str = "GET",
    hosts: tuple[str, ...] = ("localhost:8600",),
    more: Mapping[str, str] | None = None,
    sent: list[Message] | None = None,
) -> Reply:
    """The reply; what was sent until an error is in `sent`, if it is given."""
    path, _, query = target.partition("?")
    fields = [*(("host", host) for host in hosts), *(more or {}).items()]
    headers = [(name.encode(), value.encode("latin-1")) for name, value in fields]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode("latin-1"), "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8600),
    }  # fmt: skip
    messages = [] if sent is None else sent

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    names = [name.decode() for name, _ in start["headers"]]
    assert len(names) == len(set(names)), f"a header comes twice: {names}"
    received = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Reply(start["status"], received, b"".join(message.get("body", b"") for message in messages[1:]))
