"""The commands: parse arguments, call `sterna.api`, print; the only place that reads the environment."""

import sys

_RUN_USERS_PYTHON = ("follow", "storage")  # storage commands may be Python functions
_HELP = [[], ["--help"], ["-h"], ["host"], ["host", "--help"], ["host", "-h"]]  # which loads no command


def run() -> None:
    """The entry point of `sterna`."""
    from sterna.cli.exits import leave, reported  # noqa: PLC0415 - a command's module needs none of this

    code: object = 0
    try:
        with reported():
            if sys.argv[1:] == ["--version"]:  # typer alone takes longer to load than this takes
                from sterna.version import __version__  # noqa: PLC0415

                sys.stdout.write(f"sterna {__version__}\n")
            elif sys.argv[1:] in _HELP:
                from sterna.cli.app import main  # noqa: PLC0415

                main()
            else:
                from sterna.cli import confinement  # noqa: PLC0415
                from sterna.runtime.cell.kernel import share_heaps  # noqa: PLC0415

                share_heaps()  # before anything starts a thread
                confinement.is_own_process = True
                _leave_unloaded("numpy", "pandas")
                from sterna.cli.app import main  # noqa: PLC0415 - it loads libraries that make threads

                try:
                    main()
                finally:
                    confinement.finish()
    except SystemExit as ending:
        code = ending.code
    if not isinstance(code, int | None):
        raise SystemExit(code)
    leave(code or 0)


def _leave_unloaded(*names: str) -> None:
    """Arrow and DuckDB load these wherever they are installed, for half a second; no command needs them."""
    if not set(sys.argv[1:2]).intersection(_RUN_USERS_PYTHON):
        sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None makes an import fail
