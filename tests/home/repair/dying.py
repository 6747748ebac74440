"""A repair that kills itself at its Nth step: python -m tests.home.repair.dying DIR; the file `die` has N."""

import os
import signal
import sys
from pathlib import Path

sys.modules.update(dict.fromkeys(["numpy", "pandas"]))  # type: ignore[arg-type]  # as the command does

from tests.home.repair.wrecks import mend  # noqa: E402
from tests.killing import fork_on_demand, report  # noqa: E402

from sterna.home.folder import CollectionFolder  # noqa: E402


def work(folder: Path) -> None:
    name, _, fatal = (folder / "die").read_text().partition(" ")
    left = int(fatal)

    def on_step(_step: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            report("dies")
            os.kill(os.getpid(), signal.SIGKILL)

    mend(CollectionFolder(folder / name), on_step=on_step)
    report("ended")


if __name__ == "__main__":
    fork_on_demand(work)
