"""What `sterna storage` does, and what it says."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer

from sterna.archive.manifest import Snapshot
from sterna.cli.exits import Exit
from sterna.cli.numbers import duration_text, plural
from sterna.errors import ConfigError, EmptyCollection, UsageError
from sterna.home.folder import Collection
from sterna.home.snapshots import take
from sterna.query.terminal import harmless
from sterna.storage import config_file
from sterna.storage.checks import Finding, check_databases, check_rules
from sterna.storage.config import CommandSpec, Config
from sterna.storage.config_file import merged, read_config, write_config
from sterna.storage.connections import Database
from sterna.storage.looking import standings_now
from sterna.storage.manager import Manager
from sterna.storage.statements import parameters_of, statements_of
from sterna.storage.status import NAME as STATUS_NAME
from sterna.storage.status import Standing, read_status

LOOK_SECONDS = 0.5
_SHOW_SECONDS = 0.2
_QUERY_WIDTH = 100


def add(folder: Path, file: Path) -> None:
    """Merges a file into the collection's; nothing is changed if anything in it is wrong."""
    collection = _collection(folder)
    path = folder / config_file.NAME
    old = read_config(path) if path.exists() else Config()
    new = _with_folders(config_file.read_part(file), file.absolute().parent)
    config = merged(old, new)
    config_file.check_part(file, config)
    findings = list(check_rules(config, folder=folder, snapshot=_snapshot(collection)))
    wrong = [each for each in findings if each.fault and not each.may_come]
    if wrong:
        raise ConfigError(f"{file}: {wrong[0].what}: {wrong[0].fault}")
    write_config(path, config)
    for table in ("connections", "commands", "rules"):
        was, now = getattr(old, table), getattr(new, table)
        for name in now:
            how = "added" if name not in was else "unchanged" if was[name] == now[name] else "replaced"
            _say(f"{how:<9}  {table.removesuffix('s')} {name}")
    for each in findings:
        if each.fault:
            _warn(f"{each.what}: {each.fault} (so far: it waits until there is)")


def show(folder: Path) -> None:
    """Lists all that the file has."""
    config = _config(folder)
    for name, spec in config.connections.items():
        database = Database(name, spec, folder=folder, environ=os.environ)
        _say(f"connection {name}  {database.shown()}")
    for name, command in config.commands.items():
        _say(f"command {name} at {command.connection}  {_about(command)}")
    for name, rule in config.rules.items():
        _say(f"rule {name} for crawlers {rule.crawler}")
        for store in rule.store:
            query = " ".join(store.query.split())
            shown = query if len(query) <= _QUERY_WIDTH else f"{query[: _QUERY_WIDTH - 1]}…"
            _say(f"  {', '.join(store.commands)}  <-  {shown}")


def check(folder: Path) -> None:
    """Says of everything whether it can work."""
    collection, config = _collection(folder), _config(folder)
    findings = [
        *check_databases(config, folder=folder, environ=os.environ),
        *check_rules(config, folder=folder, snapshot=_snapshot(collection)),
    ]
    for each in findings:
        _say(_finding_line(each))
    if any(each.fault for each in findings):
        raise typer.Exit(int(Exit.USAGE))


def status(folder: Path, *, as_json: bool) -> None:
    """Tells how the rules stand, as the databases themselves tell it."""
    collection, config = _collection(folder), _config(folder)
    noted = read_status(folder / STATUS_NAME)
    batch = _snapshot(collection).batch
    standings = list(
        standings_now(
            config, noted, folder=folder, collection=collection.id(), batch=batch, environ=os.environ
        )
    )
    if as_json:
        answer = {"collection": str(folder), "batch": batch, "rules": standings}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return
    for standing in standings:
        _say(*_lines(standing))
    if not standings:
        _say(f"{folder / config_file.NAME} has no rules")


def run(folder: Path, *, rule: str = "", is_again: bool = False, is_following: bool = False) -> None:
    """Stores what is not stored yet, and says how far it came."""
    collection = _collection(folder)
    _config(folder)
    stop = threading.Event()
    manager = Manager(
        folder,
        collection=collection.id(),
        take=lambda: take(collection),
        environ=os.environ,
        warn=_warn,
        only=rule,
    )
    with _stopped_by_signals(stop), manager:
        if is_again:
            manager.forget()
        with _showing(manager):
            manager.catch_up(take(collection), stop=stop)
            while is_following and not stop.wait(LOOK_SECONDS):
                manager.catch_up(take(collection), stop=stop)
    standings = manager.standings()
    for standing in standings:
        _say(*_lines(standing))
    if not is_following and any(each.error or each.batch < each.of for each in standings):
        raise typer.Exit(int(Exit.STOPPED))


# -- what is there -------------------------------------------------------------------------------------------


def _collection(folder: Path) -> Collection:
    collection = Collection(folder)
    collection.check()
    return collection


def _config(folder: Path) -> Config:
    path = folder / config_file.NAME
    if not path.exists():
        raise UsageError(f"{folder} has no storage rules: 'sterna storage add {folder} FILE' adds some")
    return read_config(path)


def _snapshot(collection: Collection) -> Snapshot:
    try:
        return take(collection)
    except EmptyCollection:
        return Snapshot(tables={}, batch=0)


def _with_folders(config: Config, beside: Path) -> Config:
    """The functions of a file lie beside it, wherever it is copied to."""
    commands = {name: _with_folder(command, beside) for name, command in config.commands.items()}
    return msgspec.structs.replace(config, commands=commands)


def _with_folder(command: CommandSpec, beside: Path) -> CommandSpec:
    if not command.call:
        return command
    is_beside = beside.joinpath(*command.call.partition(":")[0].split(".")).with_suffix(".py").is_file()
    if not command.folder and not is_beside:
        return command
    return msgspec.structs.replace(command, folder=str(beside / command.folder))


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C ends the work after the rows that are just on their way."""
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- what is said --------------------------------------------------------------------------------------------


@contextmanager
def _showing(manager: Manager) -> Iterator[None]:
    """Bars on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - for those who watch
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    over = threading.Event()
    with Progress(console=Console(stderr=True), transient=True) as progress:

        def show_on() -> None:
            bars: dict[str, TaskID] = {}
            while not over.wait(_SHOW_SECONDS):
                for each in manager.standings():
                    name = f"{each.rule} -> {each.connection}"
                    bar = bars.get(name)
                    if bar is None:
                        bar = bars[name] = progress.add_task(name, total=each.of)
                    progress.update(bar, completed=max(each.batch, 0), total=each.of)

        shower = threading.Thread(target=show_on, daemon=True)
        shower.start()
        try:
            yield
        finally:
            over.set()
            shower.join()


def _lines(standing: Standing) -> list[str]:
    behind = standing.of - max(standing.batch, 0)
    far = "all is stored" if behind <= 0 else f"{plural(behind, 'batch').replace('batchs', 'batches')} to go"
    is_known = standing.state != "down" or standing.batch >= 0
    said = f"{plural(standing.stored, 'row')} stored, {far}" if is_known else "not known how far"
    lines = [f"{standing.rule} -> {standing.connection}: {said}"]
    if standing.waiting:
        lines.append(f"  {plural(standing.waiting, 'row')} refused, waiting to be tried again")
    if standing.error:
        lines.append(f"  {_trouble(standing)}{standing.error}{_next_try(standing)}")
    return lines


def _trouble(standing: Standing) -> str:
    return {"down": "database cannot be used: ", "broken": "does not work: "}.get(standing.state, "")


def _next_try(standing: Standing) -> str:
    seconds = standing.next_try - time.time()
    return f" (next try in {duration_text(seconds)})" if seconds > 0 else ""


def _about(command: CommandSpec) -> str:
    if command.call:
        return f"calls {command.call}" + (f" in {command.folder}" if command.folder else "")
    statements = statements_of(command.sql)
    names = ", ".join(f":{name}" for name in parameters_of(statements))
    return f"{plural(len(statements), 'statement')} with {names or 'no parameters'}"


def _finding_line(finding: Finding) -> str:
    if not finding.fault:
        return f"good   {finding.what}"
    return f"{'later' if finding.may_come else 'wrong'}  {finding.what}: {finding.fault}"


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))
    sys.stdout.flush()


def _warn(text: str) -> None:
    sys.stderr.write(f"sterna: {harmless(text)}\n")
