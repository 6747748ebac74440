"""Running a whole crawl in a test: in this process, or as the command in another."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

import duckdb
import uvloop
from tests.forking import Forked

from sterna.api import companion
from sterna.api.query import open_collection
from sterna.archive.disk import ignore_step
from sterna.cli.app import main
from sterna.home.crawl import Run, crawl
from sterna.home.folder import CollectionFolder
from sterna.home.intake import OnStep
from sterna.home.options import Options
from sterna.home.progress import Progress, Summary

COMMAND = (sys.executable, "-m", "sterna")
FORKING = SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
PLAIN = {"NO_COLOR": "1", "COLUMNS": "80"}  # as the command prints where there is no terminal


def crawl_here(
    folder: Path, *seeds: str, on_step: OnStep = ignore_step, refresh: float | None = None, **fields: Any
) -> Summary:
    """Crawls in this process, with one reader and without a delay unless one is given."""
    options = Options(seeds=seeds, **{"delay": 0.0, "wait": 0.0, "readers": 1, **fields})

    async def main() -> Summary:
        run = Run(stop=asyncio.Event(), on_step=on_step, refresh_seconds=refresh)
        progress = Progress(began=run.clock.now(), max_pages=options.max_pages)
        return await crawl(CollectionFolder(folder), options, run=run, progress=progress)

    return uvloop.run(main())


def command_line(arguments: Sequence[str | Path]) -> list[str]:
    """The command; a crawl does without its index, unless it is asked for: a test would wait for it."""
    words = list(map(str, arguments))
    if words[:1] == ["crawl"] and "--index" not in words:
        words.append("--no-index")
    return [*COMMAND, *words]


def sterna(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end, in this process: to load everything anew takes most of a second.

    In another thread it gets a process, for signals and the output are the main thread's.
    """
    if threading.current_thread() is not threading.main_thread():
        return sterna_process(*arguments)
    return call(command_line(arguments)[len(COMMAND) :])


def call(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs the command with exactly these words, in this process."""
    with (
        TemporaryFile("w+", encoding="utf-8") as out,
        TemporaryFile("w+", encoding="utf-8") as err,
        patch.dict(os.environ, PLAIN),
        patch.multiple(sys, argv=["sterna", *words], stdout=out, stderr=err),
        patch.object(companion, "subprocess", FORKING),
    ):
        code = _exit_code()
        return subprocess.CompletedProcess(words, code, _text_of(out), _text_of(err))


def _exit_code() -> int:
    try:
        main()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def _text_of(stream: IO[str]) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def sterna_process(*arguments: str | Path, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end in a process of its own, for tests of what a process does."""
    return subprocess.run(
        command_line(arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **PLAIN},
        check=False,
    )


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Starts the command in a process group of its own."""
    return Forked(
        command_line(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9, for the whole group: its readers too."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def summary_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last line of --json."""
    last: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return last


def ask(folder: Path, sql: str) -> list[dict[str, Any]]:
    """The rows of a query over a collection."""
    with open_collection(CollectionFolder(folder)) as engine:
        answer = engine.run(sql)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def segment_paths(folder: Path, table: str) -> list[str]:
    """The files that the ledger names."""
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        rows = db.execute(
            "SELECT name FROM segment WHERE tbl = ? AND retired_at IS NULL", (table,)
        ).fetchall()
    return [str(folder / "segments" / name) for (name,) in rows]


def rows(folder: Path, sql: str, table: str = "page", *, with_names: bool = False) -> list[tuple[Any, ...]]:
    """SQL over all rows of a table as `t`, every version of them."""
    paths = segment_paths(folder, table)
    if not paths:
        return []
    with duckdb.connect() as db:
        return db.execute(
            f"WITH t AS (SELECT * FROM read_parquet({paths!r}, filename={with_names})) {sql}"
        ).fetchall()


def stored_urls(folder: Path, status: int = 200) -> list[str]:
    """The URL of every page row with this status, repeats included, sorted."""
    return [url for (url,) in rows(folder, f"SELECT url FROM t WHERE status = {status} ORDER BY url")]
