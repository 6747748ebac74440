"""One rule that puts pages into one table: what tests of trouble share."""

import time
from collections.abc import Callable

from tests.storage.places import Place

INSERT = "INSERT INTO t (url, size) VALUES (:url, :size)"
QUERY = "SELECT url, size FROM page"


def rules(url: str, sql: str = INSERT, *, query: str = QUERY, more: str = "") -> str:
    command = f'sql = "{sql}"' if " " in sql else f'call = "{sql}"'
    return f"""
[connections.main]
url = "{url}"
[commands.Add]
connection = "main"
{command}
[rules.pages]
[[rules.pages.store]]
query = '''{query}'''
commands = ["Add"]
{more}
"""


def sizes(place: Place) -> list[int]:
    return sorted(size for (size,) in place.run("SELECT size FROM t"))


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
