"""Compiles the reader in C while a wheel is made, where there is a compiler; else the wheel has none."""

import sysconfig
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD = "src/sterna/web/native/build.py"


class CompiledReader(BuildHookInterface[Any]):
    """A wheel that has the reader is for one kind of machine, but for every Python: it uses no Python.h."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = run_path(f"{self.root}/{BUILD}")
        if reason := build["compile_reader"]():
            self.app.display_warning(f"the reader in C was not built ({reason}): {build['SLOWER']}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(str(build["LIBRARY"].relative_to(self.root)))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
