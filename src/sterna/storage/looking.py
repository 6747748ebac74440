"""How the rules stand now, as their databases tell it; where one does not answer, as it was noted last."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from sterna.storage import position
from sterna.storage.config import Config
from sterna.storage.connections import Database
from sterna.storage.faults import Fault
from sterna.storage.position import Key
from sterna.storage.status import Standing, Status

_CONNECT_SECONDS = 3


def standings_now(
    config: Config,
    noted: Status | None,
    *,
    folder: Path,
    collection: str,
    batch: int,
    environ: Mapping[str, str],
) -> Iterator[Standing]:
    """A line for each rule and database; `batch` is the archive's last one."""
    last = {(each.rule, each.connection): each for each in (noted.rules if noted else ())}
    for name, spec in config.connections.items():
        database = Database(name, spec, folder=folder, environ=environ, connect_seconds=_CONNECT_SECONDS)
        rules = [rule for rule in config.rules if name in config.connections_of(rule)]
        try:
            for rule in rules:
                standing = last.get((rule, name), Standing(rule=rule, connection=name))
                yield _now(database, Key(collection, rule), msgspec.structs.replace(standing, of=batch))
        finally:
            database.close()


def _now(database: Database, key: Key, noted: Standing) -> Standing:
    try:
        with database.connect(is_reader=True) as connection:
            if not position.has_tables(connection):
                return msgspec.structs.replace(noted, batch=position.BEFORE_ALL, stored=0, waiting=0)
            known = position.read(connection, key)
            waiting = position.waiting(connection, key)
    except Fault as fault:
        since = noted.since or time.time()
        return msgspec.structs.replace(noted, state=str(fault.kind), error=str(fault), since=since)
    found = msgspec.structs.replace(noted, batch=known.batch, stored=known.stored, waiting=waiting.count)
    if noted.state == "down":  # it answers again; what was noted is over
        found = msgspec.structs.replace(found, state="ok", error="", since=0.0, next_try=0.0)
    if waiting.count and not found.error:
        found = msgspec.structs.replace(found, error=waiting.error, next_try=waiting.next_try)
    return found
