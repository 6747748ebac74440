"""The commands: parse arguments, call `sterna.api`, print; the only place that reads the environment."""

import sys


def run() -> None:
    """The entry point of `sterna`."""
    from sterna.cli.exits import leave, reported  # noqa: PLC0415 - a command's module needs none of this

    code: object = 0
    try:
        with reported():
            if sys.argv[1:] == ["--version"]:  # typer alone takes longer to load than this takes
                from sterna.version import __version__  # noqa: PLC0415

                sys.stdout.write(f"sterna {__version__}\n")
            else:
                from sterna.runtime.cell.kernel import share_heaps  # noqa: PLC0415

                share_heaps()  # before anything starts a thread
                from sterna.cli.app import main  # noqa: PLC0415 - it loads libraries that make threads

                main()
    except SystemExit as ending:
        code = ending.code
    if not isinstance(code, int | None):
        raise SystemExit(code)
    leave(code or 0)
