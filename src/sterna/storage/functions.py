"""Functions of the user's that store rows: `module:function`, loaded at run time, and again when changed."""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from sterna.storage.faults import Fault, Kind, text_of
from sterna.toml import stamp

Function = Callable[[Any, list[dict[str, Any]]], object]

_PRIVATE = "sterna_storage_call_"


class Functions:
    """The functions that commands name; a module is read once for all that are in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By folder and name; changed under the lock.
        self._loaded: dict[tuple[str, str], tuple[tuple[int, ...], ModuleType]] = {}

    def find(self, call: str, folder: Path) -> Function:
        """The function as its file has it now; a Fault says what is missing."""
        module_name, _, name = call.partition(":")
        with self._lock:
            module = self._module(module_name, folder)
        function = getattr(module, name, None)
        if not callable(function):
            raise Fault(Kind.BROKEN, f"module {module_name!r} has no function {name!r}")
        return function  # type: ignore[no-any-return]

    def version(self, call: str, folder: Path) -> tuple[int, ...]:
        """What differs when the function's file was changed."""
        return stamp(_file_of(call.partition(":")[0], folder))

    def _module(self, name: str, folder: Path) -> ModuleType:
        path = _file_of(name, folder)
        seen = stamp(path)
        found = self._loaded.get((str(folder), name))
        if found and found[0] == seen:
            return found[1]
        try:
            module = _from_file(name, path) if path.is_file() else importlib.import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                text = f"there is no module {name!r}: put {path.name} into {folder}, or install it"
            else:
                text = f"module {name!r} cannot be loaded: {type(error).__name__}: {text_of(error)}"
            raise Fault(Kind.BROKEN, text) from error
        self._loaded[str(folder), name] = (seen, module)
        return module


class _FromSource(SourceFileLoader):
    """Never by way of a cached file, which a change within the same second does not renew."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _file_of(name: str, folder: Path) -> Path:
    return folder.joinpath(*name.split(".")).with_suffix(".py")


def _from_file(name: str, path: Path) -> ModuleType:
    # Under a name of our own: two collections may each have a module of the same name.
    private = f"{_PRIVATE}{abs(hash(str(path)))}_{name.replace('.', '_')}"
    spec = importlib.util.spec_from_loader(private, _FromSource(private, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module
    spec.loader.exec_module(module)
    return module
