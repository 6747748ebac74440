"""The storage rules of a collection: add to them, check them, run them."""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

from sterna.archive.manifest import Snapshot
from sterna.errors import ConfigError, EmptyCollection, UsageError, command
from sterna.home.folder import CollectionFolder
from sterna.runtime.cell.confined import Confined
from sterna.storage.checks import Finding, check_databases, check_rules
from sterna.storage.config import Config, check_part, merged, read_config, write_config
from sterna.storage.manager import Manager
from sterna.storage.status import NAME as STATUS_NAME
from sterna.storage.status import Standing, read_status, standings_now

LOOK_SECONDS = 0.5


class Change(NamedTuple):
    """What became of an entry that a file names."""

    how: str  # added, unchanged or replaced
    what: str  # connection, command or rule
    name: str


def add_rules(collection: CollectionFolder, file: Path) -> tuple[list[Change], list[Finding]]:
    """Merges a file into the collection's rules, and returns what cannot work yet.

    Raises ConfigError, and changes nothing, if anything in the file is wrong.
    """
    collection.check()
    old = read_config(collection.storage_path) if collection.storage_path.exists() else Config()
    new = _with_folders(read_config(file, is_part=True), file.absolute().parent)
    config = merged(old, new)
    check_part(file, config)
    findings = _checked_rules(config, collection)
    wrong = [each for each in findings if each.fault and not each.may_come]
    if wrong:
        raise ConfigError(f"{file}: {wrong[0].what}: {wrong[0].fault}")
    write_config(collection.storage_path, config)
    changes = []
    for table in ("connections", "commands", "rules"):
        was, now = getattr(old, table), getattr(new, table)
        for name in now:
            how = "added" if name not in was else "unchanged" if was[name] == now[name] else "replaced"
            changes.append(Change(how, table.removesuffix("s"), name))
    return changes, [each for each in findings if each.fault]


def rules_of(collection: CollectionFolder) -> Config:
    """The connections, commands and rules of a collection; raises UsageError if it has none."""
    collection.check()
    if not collection.storage_path.exists():
        folder = collection.folder
        raise UsageError(
            f"{folder} has no storage rules: '{command('storage', 'add', folder, 'FILE')}' adds some"
        )
    return read_config(collection.storage_path)


def check_storage(collection: CollectionFolder, *, environ: Mapping[str, str]) -> list[Finding]:
    config, folder = rules_of(collection), collection.folder
    return [
        *check_databases(config, folder=folder, environ=environ),
        *_checked_rules(config, collection),
    ]


def storage_status(collection: CollectionFolder, *, environ: Mapping[str, str]) -> tuple[int, list[Standing]]:
    """The number of the last batch, and how far each rule is, as the databases themselves say."""
    config, folder = rules_of(collection), collection.folder
    batch = _snapshot(collection).batch
    standings = standings_now(
        config,
        read_status(folder / STATUS_NAME),
        folder=folder,
        collection=collection.id(),
        batch=batch,
        environ=environ,
    )
    return batch, list(standings)


def run_rules(
    collection: CollectionFolder,
    *,
    rule: str = "",
    is_again: bool = False,
    is_following: bool = False,
    stop: threading.Event,
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    show: Callable[[Manager], AbstractContextManager[None]] = lambda manager: nullcontext(),
) -> list[Standing]:
    """Stores what is not stored yet, and returns how far it came; `is_following` goes on until `stop`."""
    rules_of(collection)
    collection.check_links()
    with open_manager(collection, environ=environ, warn=warn, only=rule) as manager:
        if is_again:
            manager.forget()
        with show(manager):
            manager.catch_up(collection.snapshot(), stop=stop)
            while is_following and not stop.wait(LOOK_SECONDS):
                manager.catch_up(collection.snapshot(), stop=stop)
    return manager.standings()


def open_manager(
    collection: CollectionFolder, *, environ: Mapping[str, str], warn: Callable[[str], None], only: str = ""
) -> Manager:
    """What applies the rules of a collection, or one of them, as a context."""
    return Manager(
        collection.folder,
        collection=collection.id(),
        segments=collection.segments_folder,
        take=collection.snapshot,
        environ=environ,
        warn=warn,
        only=only,
    )


def _checked_rules(config: Config, collection: CollectionFolder) -> list[Finding]:
    with closing(Confined(collection.segments_folder)) as confined:
        return list(
            check_rules(config, folder=collection.folder, snapshot=_snapshot(collection), confined=confined)
        )


def _snapshot(collection: CollectionFolder) -> Snapshot:
    try:
        return collection.snapshot()
    except EmptyCollection:
        return Snapshot(tables={}, batch=0)


def _with_folders(config: Config, beside: Path) -> Config:
    """The config with the folder of each Python function, which is relative to the file that names it."""
    commands = dict(config.commands)
    for name, each in config.commands.items():
        module = each.call.partition(":")[0].split(".")
        is_beside = beside.joinpath(*module).with_suffix(".py").is_file()
        if each.call and (each.folder or is_beside):
            commands[name] = msgspec.structs.replace(each, folder=str(beside / each.folder))
    return msgspec.structs.replace(config, commands=commands)
