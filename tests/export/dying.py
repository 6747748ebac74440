"""Exports, and dies without a word, as by a power cut, when everything is made and nothing is renamed yet."""

import os
import signal
import sys
from pathlib import Path

from sterna.api.export import export
from sterna.export import making
from sterna.export.job import ExportJob
from sterna.home.folder import CollectionFolder

if __name__ == "__main__":
    making.publish = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[attr-defined]
    wish = ExportJob(kind=sys.argv[2], place=Path(sys.argv[3]))  # type: ignore[arg-type]
    export(CollectionFolder(Path(sys.argv[1])), wish, where="url LIKE '%/lang%'", stdout=sys.stdout.buffer)
