"""`sterna doctor`: what protection this machine offers against foreign crawlers."""

import asyncio

import typer

from sterna.api.doctor import examine
from sterna.cli.exits import Exit
from sterna.cli.flags import JsonOption
from sterna.cli.lines import say, say_json


def doctor(as_json: JsonOption = False) -> None:
    """Show what protection this machine offers, and whether it can run foreign crawlers."""
    report = asyncio.run(examine())
    if as_json:
        say_json(report)
    else:
        bubblewrap = "works" if report.has_bubblewrap else "does not work" if report.bubblewrap else "none"
        engine = f"starts in {report.start_milliseconds:.1f} ms" if report.runs_own_crawlers else "none"
        rows = {
            "kernel": f"{report.kernel}, {report.machine}",
            "user": "root; engines run as nobody" if report.is_root else "an ordinary user",
            "seccomp": "works" if report.has_seccomp else "does not work",
            "Landlock": f"ABI {report.landlock_abi}" if report.landlock_abi else "none",
            "bubblewrap": bubblewrap,
            "CLIPS engine": engine,
            "pages are read": "in C" if report.reads_in_c else "in Python",
            "own crawlers": "run" if report.runs_own_crawlers else "cannot run with rules",
            "foreign crawlers": "can be taken" if report.takes_foreign_crawlers else "are refused",
        }
        say(*(f"{name:<17} {words}" for name, words in rows.items()))
        say(*(f"missing: {each}" for each in report.missing))
    if not report.takes_foreign_crawlers:
        raise typer.Exit(int(Exit.NOTHING))
