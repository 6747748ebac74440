"""Wheels of what is installed here, so that the scripts which install Sterna need no network in a test."""

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def make_wheels(folder: Path, *roots: str) -> dict[str, str]:
    """A wheel of each package and of what it needs, but not of Sterna itself; an environment for pip."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in _closure(roots):
        if each.name.lower() != "sterna":
            _repack(each, folder)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_NO_CACHE_DIR": "1"}


def _closure(roots: Iterable[str]) -> Iterator[Distribution]:
    waiting, seen = list(roots), set()
    while waiting:
        if (name := re.sub(r"[-_.]+", "-", waiting.pop().lower())) in seen:
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        needs = (Requirement(text) for text in found.requires or ())
        waiting += [each.name for each in needs if not each.marker or each.marker.evaluate({"extra": ""})]


def _repack(found: Distribution, folder: Path) -> None:
    """The wheel from which this was installed, but for the programs, which pip makes anew."""
    text = found.read_text("WHEEL") or ""
    tags = re.findall(r"^Tag: (.*)$", text, re.MULTILINE)
    abi = tags[0].split("-")[1]
    platforms = ".".join(sorted({tag.split("-")[2] for tag in tags}))
    pythons = ".".join(sorted({tag.split("-")[0] for tag in tags}))
    name = re.sub(r"[-_.]+", "_", found.name)
    info = f"{name}-{found.version}.dist-info"
    record = []
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{pythons}-{abi}-{platforms}.whl", "w") as wheel:
        for file in found.files or ():
            is_made = file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
            if is_made or ".." in file.parts or file.suffix == ".pyc":
                continue
            path = str(file)
            if file.parts[0].endswith(".dist-info"):
                path = "/".join((info, *file.parts[1:]))
            data = Path(str(file.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f'"{path}",sha256={digest},{len(data)}')
            wheel.writestr(path, data)
        record.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
