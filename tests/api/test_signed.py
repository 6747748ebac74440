"""A signed crawler: its file says by whom, and is refused once name or program were changed."""

from pathlib import Path

import msgspec
import pytest

from sterna.api.crawlers import read_crawler, signed
from sterna.crawler.pack import PackedCrawler, describe, encode
from sterna.errors import SpecError
from sterna.model import Crawler, Program, Scope
from sterna.wire.keys import Identity

AUTHOR = Identity(b"a" * 32)
PACKED = signed(PackedCrawler(crawler=Crawler(name="health")), AUTHOR)


def written(folder: Path, packed: PackedCrawler) -> Path:
    path = folder / "health.crawler"
    path.write_bytes(encode(packed))
    return path


def changed(**fields: object) -> PackedCrawler:
    return msgspec.structs.replace(PACKED, crawler=msgspec.structs.replace(PACKED.crawler, **fields))


def test_signed_file_says_by_whom(tmp_path: Path) -> None:
    assert f"signed   by {AUTHOR.public.text}\n" in describe(read_crawler(written(tmp_path, PACKED)))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"program": Program(drives_loading=True)},
        {"signature": b""},
        {"author": Identity(b"b" * 32).public.text},
        {"author": "ed25519:x"},
    ],
)
def test_file_that_changed_after_it_was_signed_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=r"health\.crawler was changed after it was signed .*: get it again"):
        read_crawler(written(tmp_path, changed(**fields)))


def test_scope_is_that_of_a_run_and_may_change(tmp_path: Path) -> None:
    packed = changed(scope=Scope(max_depth=3))
    assert read_crawler(written(tmp_path, packed)).crawler.scope.max_depth == 3
