"""A crawl that kills itself with SIGKILL at a named step: python -m tests.crawl.dying DIR URL STEP COUNT."""

import os
import signal
import sys
from pathlib import Path

from tests.crawl.running import crawl_here


def main(folder: str, url: str, step: str, count: str) -> None:
    left = int(count)

    def on_step(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    crawl_here(Path(folder), url, on_step=on_step, warc=True, concurrency=16)


if __name__ == "__main__":
    main(*sys.argv[1:])
