"""A WACZ package as its specification wants it: every hash holds, every line of its index leads home."""

import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.export.exported import export
from warcio.archiveiterator import ArchiveIterator

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def package(real_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = export(real_collection, "wacz", tmp_path_factory.mktemp("wacz") / "sqlite.wacz")
    return zipfile.ZipFile(out)


def lines_of(package: zipfile.ZipFile) -> list[tuple[str, str, dict[str, Any]]]:
    text = gzip.decompress(package.read("indexes/index.cdx.gz")).decode()
    parts = [line.split(" ", 2) for line in text.splitlines()]
    return [(key, at, json.loads(fields)) for key, at, fields in parts]


def test_manifest_names_every_file_with_its_hash(package: zipfile.ZipFile) -> None:
    manifest = json.loads(package.read("datapackage.json"))
    assert (manifest["profile"], manifest["wacz_version"]) == ("data-package", "1.1.1")
    assert manifest["title"] == "sqlite"
    assert manifest["software"].startswith("sterna ")
    described = {resource["path"]: resource for resource in manifest["resources"]}
    assert set(described) | {"datapackage.json", "datapackage-digest.json"} == set(package.namelist())
    for path, resource in described.items():
        data = package.read(path)
        assert resource["bytes"] == len(data)
        assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert resource["name"] == path.rpartition("/")[2]


def test_digest_vouches_for_the_manifest(package: zipfile.ZipFile) -> None:
    stated = json.loads(package.read("datapackage-digest.json"))
    digest = hashlib.sha256(package.read("datapackage.json")).hexdigest()
    assert stated == {"path": "datapackage.json", "hash": f"sha256:{digest}"}


def test_layout_is_the_one_of_the_specification(package: zipfile.ZipFile) -> None:
    assert package.testzip() is None
    names = package.namelist()
    assert {"indexes/index.cdx.gz", "indexes/index.idx", "pages/pages.jsonl"} <= set(names)
    assert any(name.startswith("archive/") for name in names)
    packed = [info for info in package.infolist() if info.filename.endswith(".gz")]
    assert [info.compress_type for info in packed] == [zipfile.ZIP_STORED] * len(packed)


def test_index_leads_to_every_record(package: zipfile.ZipFile, real_collection: Path) -> None:
    lines = lines_of(package)
    assert len(lines) > 100
    assert [line[:2] for line in lines] == sorted(line[:2] for line in lines)
    for key, at, fields in lines:
        start, length = int(fields["offset"]), int(fields["length"])
        data = package.read(f"archive/{fields['filename']}")[start:][:length]
        assert fields["recordDigest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        (record,) = ArchiveIterator(io.BytesIO(data))
        assert record.rec_headers["WARC-Target-URI"] == fields["url"]
        assert "".join(filter(str.isdigit, record.rec_headers["WARC-Date"]))[:14] == at
        assert key.startswith("1,0,0,127:")


def test_archive_holds_the_collections_files(package: zipfile.ZipFile, real_collection: Path) -> None:
    for path in (real_collection / "warc").iterdir():
        assert package.read(f"archive/{path.name}") == path.read_bytes()


def test_listed_pages_can_be_looked_up(package: zipfile.ZipFile) -> None:
    head, *pages = [json.loads(line) for line in package.read("pages/pages.jsonl").splitlines()]
    assert head["format"] == "json-pages-1.0"
    captured = {(fields["url"], at) for _, at, fields in lines_of(package) if fields["mime"] == "text/html"}
    listed = {(each["url"], "".join(filter(str.isdigit, each["ts"]))) for each in pages}
    assert len(pages) == len({each["id"] for each in pages}) > 50
    assert listed <= captured
    assert all(each["title"] for each in pages)
    manifest = json.loads(package.read("datapackage.json"))
    assert manifest["mainPageUrl"].endswith("/index.html")
    assert manifest["mainPageUrl"] in {url for url, _ in listed}


def test_condition_makes_a_smaller_package(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "wacz", tmp_path / "some.wacz", where="url LIKE '%/lang%'")
    with zipfile.ZipFile(out) as package:
        lines = lines_of(package)
        assert 0 < len(lines) < 100
        assert all("/lang" in fields["url"] for _, _, fields in lines)
        for _, _, fields in lines:
            data = package.read(f"archive/{fields['filename']}")[int(fields["offset"]) :]
            (record,) = ArchiveIterator(io.BytesIO(data[: int(fields["length"])]))
            assert record.rec_headers["WARC-Target-URI"] == fields["url"]
        _, *pages = package.read("pages/pages.jsonl").splitlines()
        assert {json.loads(each)["url"] for each in pages} <= {fields["url"] for _, _, fields in lines}
