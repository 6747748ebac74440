"""WARC files as other tools read them, and as they are after a crash at any step."""

import errno
import gzip
import io
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import making
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from sterna.archive.manifest import Original, WarcPosition
from sterna.archive.warc import WarcStore
from sterna.archive.warc_records import original_of
from sterna.errors import StorageError
from sterna.model import Page, Raw

URL = "https://www.example.org/"
REQUEST = b"GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n"


def raw(body: bytes, *fields: bytes, **others: Any) -> Raw:
    head = b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Type: text/html", *fields, b"", b""])
    return Raw(
        **({"request_head": REQUEST, "response_head": head, "address": "192.0.2.1"} | others), body=body
    )


def page(number: int = 0, body: bytes = b"<p>body", **fields: Any) -> Page:
    given: dict[str, Any] = {"fetched": making.NOW + 0.25, "raw": raw(body)}
    return making.page(f"/{number}", **(given | fields))


def warc_store(folder: Path, **options: Any) -> WarcStore:
    return WarcStore(folder, **({"software": "Sterna/test"} | options))


def read(data: bytes) -> list[Any]:
    """What warcio finds, as (type, headers, HTTP headers, body); it checks every digest on the way."""
    found = []
    for record in ArchiveIterator(io.BytesIO(data), check_digests="raise"):
        body = record.raw_stream.read()
        found.append(
            SimpleNamespace(
                kind=record.rec_type,
                headers=dict(record.rec_headers.headers),
                http=record.http_headers,
                body=body,
            )
        )
    return found


def answers(data: bytes) -> list[Any]:
    return [record for record in read(data) if record.kind in ("response", "revisit")]


def written(folder: Path, *pages: Page, originals: Sequence[Original | None] | None = None) -> list[Any]:
    """The records of a file that holds these pages."""
    store = warc_store(folder)
    store.append(pages, originals)
    (closed,) = store.close()
    path = store.path(closed.name)
    assert Checker(SimpleNamespace(inputs=[str(path)], verbose=False)).process_all() == 0
    return read(path.read_bytes())


def test_file_begins_with_who_wrote_it(tmp_path: Path) -> None:
    store = warc_store(tmp_path, software="Sterna/1 (x\r\nrobots: evil)", user_agent="Sterna")
    (position,) = store.append([page()])
    info, *_ = read((tmp_path / f"{position.name}.open").read_bytes())
    assert info.kind == "warcinfo"
    assert info.headers["WARC-Filename"] == position.name
    assert info.body.decode().splitlines() == [
        "format: WARC File Format 1.1",
        "software: Sterna/1 (x robots: evil)",
        "robots: classic",
        "http-header-user-agent: Sterna",
    ]


def test_response_and_request_are_tied_together(tmp_path: Path) -> None:
    _, response, request = written(tmp_path, page(body=b"hello"))
    assert (response.kind, request.kind) == ("response", "request")
    assert response.headers["WARC-Target-URI"] == request.headers["WARC-Target-URI"] == f"{URL}0"
    assert response.headers["WARC-Date"] == "2023-11-14T22:13:20.250000Z"
    assert response.headers["WARC-IP-Address"] == "192.0.2.1"
    assert response.headers["WARC-Payload-Digest"] == "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"
    assert request.headers["WARC-Concurrent-To"] == response.headers["WARC-Record-ID"]
    assert response.body == b"hello"
    assert request.http.statusline == "/ HTTP/1.1"


def test_every_record_says_warc_1_1(tmp_path: Path) -> None:
    store = warc_store(tmp_path)
    store.append([page()])
    (closed,) = store.close()
    data = gzip.decompress(store.path(closed.name).read_bytes())
    assert data.count(b"WARC/1.1\r\n") == 3
    assert b"WARC/1.0" not in data


def test_every_record_is_a_gzip_member_of_its_own(tmp_path: Path) -> None:
    store = warc_store(tmp_path)
    store.append([page(1), page(2)])
    (closed,) = store.close()
    rest = store.path(closed.name).read_bytes()
    starts = []
    while rest:
        member = zlib.decompressobj(wbits=31)
        starts.append(member.decompress(rest)[:9])
        rest = member.unused_data
    assert starts == [b"WARC/1.1\r"] * 5


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ([b"Transfer-Encoding: chunked"], b"<p>de-chunked"),
        ([b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"], gzip.compress(b"<p>packed", mtime=0)),
        ([b"Content-Length: 999"], b"<p>short"),
        ([b"Content-Length: 0"], b""),
        ([], b""),
        ([], bytes(range(256)) * 400),
    ],
)
def test_any_body_comes_back(tmp_path: Path, fields: list[bytes], body: bytes) -> None:
    _, response, _ = written(tmp_path, page(raw=raw(body, *fields)))
    assert response.body == body
    assert response.http.get_header("Transfer-Encoding") is None
    assert response.http.get_header("Content-Length") in (None, str(len(body)))


def test_packed_body_is_unpacked_by_readers(tmp_path: Path) -> None:
    store = warc_store(tmp_path)
    packed = raw(gzip.compress(b"<p>text"), b"Transfer-Encoding: chunked", b"Content-Encoding: gzip")
    store.append([page(raw=packed)])
    (closed,) = store.close()
    with store.path(closed.name).open("rb") as file:
        contents = [
            each.content_stream().read() for each in ArchiveIterator(file) if each.rec_type == "response"
        ]
    assert contents == [b"<p>text"]


def test_http2_is_written_in_the_form_of_http1_and_named(tmp_path: Path) -> None:
    second = raw(
        b"x",
        response_head=b"HTTP/2 200 \r\nserver: a\r\n\r\n",
        request_head=b"GET / HTTP/2\r\nHost: a\r\n\r\n",
    )
    is_http2 = Raw(second.request_head, second.response_head, second.body, second.address, is_http2=True)
    _, response, request = written(tmp_path, page(raw=is_http2))
    assert (response.http.protocol, response.http.get_statuscode()) == ("HTTP/1.1", "200")
    assert request.http.statusline == "/ HTTP/1.1"
    assert response.headers["WARC-Protocol"] == request.headers["WARC-Protocol"] == "h2"


def test_not_modified_is_a_revisit(tmp_path: Path) -> None:
    head = b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 77\r\n\r\n"
    again = page(status=304, is_unchanged=True, raw=Raw(REQUEST, head, b"", "2001:db8::1"))
    first = page(fetched=making.NOW - 60)
    assert first.raw
    _, response, _, revisit, _ = written(
        tmp_path, first, again, originals=[None, original_of(first, first.raw)]
    )
    assert revisit.kind == "revisit"
    assert revisit.headers["WARC-Profile"].endswith("/server-not-modified")
    assert revisit.headers["WARC-Refers-To-Target-URI"] == f"{URL}0"
    assert revisit.headers["WARC-IP-Address"] == "2001:db8::1"
    assert (
        revisit.headers["WARC-Refers-To-Date"]
        == response.headers["WARC-Date"]
        != revisit.headers["WARC-Date"]
    )
    assert revisit.headers["WARC-Payload-Digest"] == response.headers["WARC-Payload-Digest"]
    assert revisit.headers["Content-Length"] == "0"  # browsers would be shown a 304, which is empty


def test_known_body_is_a_revisit_with_its_digest(tmp_path: Path) -> None:
    page_ = page()
    assert page_.raw
    originals = [None, original_of(page_, page_.raw)]
    _, first, _, again, _ = written(tmp_path, page_, page(is_unchanged=True), originals=originals)
    assert (first.kind, again.kind) == ("response", "revisit")
    assert again.headers["WARC-Profile"].endswith("/identical-payload-digest")
    assert again.headers["WARC-Payload-Digest"] == first.headers["WARC-Payload-Digest"]
    assert again.headers["WARC-Refers-To-Date"] == first.headers["WARC-Date"]
    assert (again.http.get_statuscode(), again.body) == ("200", b"")


def test_known_body_in_another_coding_is_stored_whole(tmp_path: Path) -> None:
    first = page()
    assert first.raw
    packed = raw(b"packed")
    again = page(is_unchanged=True, raw=packed)
    _, _, _, whole, _ = written(tmp_path, first, again, originals=[None, original_of(first, first.raw)])
    assert (whole.kind, whole.body) == ("response", b"packed")


def test_unchanged_page_of_which_nothing_is_stored_is_stored_whole(tmp_path: Path) -> None:
    _, whole, _ = written(tmp_path, page(is_unchanged=True))
    assert whole.kind == "response"


def test_what_a_hostile_runtime_sends_cannot_forge_headers(tmp_path: Path) -> None:
    forged = page(
        url="https://a/\r\nWARC-Type: metadata\r\n\r\n\ud800",
        fetched=float("nan"),
        raw=raw(b"x", address="192.0.2.1\r\nX: y"),
    )
    _, response, _ = written(tmp_path, forged)
    assert response.kind == "response"
    assert "WARC-IP-Address" not in response.headers
    assert response.headers["WARC-Date"] == "1970-01-01T00:00:00.000000Z"
    assert response.body == b"x"


def test_page_without_its_raw_form_leaves_no_record(tmp_path: Path) -> None:
    store = warc_store(tmp_path)
    assert store.append([page(raw=None)]) == []
    assert store.close() == []
    assert list(tmp_path.iterdir()) == []


def test_response_that_would_pass_the_limit_begins_a_new_file(tmp_path: Path) -> None:
    store = warc_store(tmp_path, max_bytes=6_000)
    positions = store.append([page(number, os.urandom(2_000)) for number in range(6)])
    assert [position.is_open for position in positions] == [False, False, True]
    store.close()
    files = [store.path(position.name).read_bytes() for position in positions]
    assert [len(answers(data)) for data in files] == [2, 2, 2]
    assert [read(data)[0].kind for data in files] == ["warcinfo"] * 3
    assert all(
        len(data) == position.committed_bytes <= 6_000
        for data, position in zip(files, positions, strict=True)
    )


def test_page_larger_than_any_file_gets_one_of_its_own(tmp_path: Path) -> None:
    store = warc_store(tmp_path, max_bytes=3_000)
    positions = store.append([page(1), page(2, os.urandom(9_000)), page(3)])
    store.close()
    found = [len(answers(store.path(position.name).read_bytes())) for position in positions]
    assert found == [1, 1, 1]


def test_full_file_is_renamed_only_after_it_was_handed_back(tmp_path: Path) -> None:
    store = warc_store(tmp_path, max_bytes=3_000)
    full, _ = store.append([page(1, os.urandom(2_000)), page(2, os.urandom(2_000))])
    assert not store.path(full.name).exists()
    store.append([page(3)])
    assert store.path(full.name).exists()


def test_append_is_handed_back_only_when_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sync = os.fsync

    def noted_sync(handle: int) -> None:
        target = Path(f"/proc/self/fd/{handle}").readlink()
        happened.append("sync folder" if target.is_dir() else f"sync {target.suffix}")
        sync(handle)

    store = warc_store(tmp_path, on_step=happened.append)
    monkeypatch.setattr(os, "fsync", noted_sync)
    store.append([page(1)])
    assert happened == ["warc-written", "sync .open", "sync folder", "warc-synced"]
    happened.clear()
    store.append([page(2)])
    assert happened == ["warc-written", "sync .open", "warc-synced"]


def test_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    store = warc_store(tmp_path, max_bytes=3_000)
    (position,) = store.append([page(1)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="disk is full: free some space"):
            store.append([page(2, os.urandom(1_000)), page(3, os.urandom(2_000))])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (grown,) = store.append([page(4)])
    assert grown.name == position.name
    assert len(answers((tmp_path / f"{position.name}.open").read_bytes())) == 2


@pytest.mark.parametrize("later", [[], [page(2)]])
def test_tail_that_could_not_be_undone_does_not_pass_for_complete(tmp_path: Path, later: list[Page]) -> None:
    store = warc_store(tmp_path)
    (position,) = store.append([page(1)])
    with (tmp_path / f"{position.name}.open").open("ab") as file:
        file.write(b"half a record" * 1_000)
    store.append(later)
    if later:
        assert len(answers((tmp_path / f"{position.name}.open").read_bytes())) == 2
    store.close()
    assert len(answers(store.path(position.name).read_bytes())) == 1 + len(later)


def test_recover_cuts_what_was_not_committed_and_sets_it_aside(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    (committed,) = warc_store(folder).append([page(1)])
    for tail in (b"first crash", b"second crash"):
        with (folder / f"{committed.name}.open").open("ab") as file:
            file.write(tail)
        store = warc_store(folder)
        store.recover([committed])
    (grown,) = store.append([page(2)])
    assert grown.name == committed.name
    assert len(answers((folder / f"{committed.name}.open").read_bytes())) == 2
    assert {path.read_bytes() for path in (tmp_path / "aside").iterdir()} == {b"first crash", b"second crash"}


def test_open_files_that_were_never_committed_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    (never,) = warc_store(folder).append([page(1)])
    (folder / "owner.warc.gz").write_bytes(b"the owner's own")
    warc_store(folder).recover([])
    assert [path.name for path in folder.iterdir()] == ["owner.warc.gz"]
    assert [path.name for path in (tmp_path / "aside").iterdir()] == [f"{never.name}.open"]


def test_file_says_whose_it_is(tmp_path: Path) -> None:
    (position,) = warc_store(tmp_path, collection="c1").append([page(1)])
    assert b"isPartOf: c1\r\n" in gzip.decompress((tmp_path / f"{position.name}.open").read_bytes())


def test_crash_between_rename_and_manifest_leaves_the_file_open(tmp_path: Path) -> None:
    first = warc_store(tmp_path)
    (committed,) = first.append([page(1)])
    first.close()
    store = warc_store(tmp_path)
    store.recover([committed])
    (grown,) = store.append([page(2)])
    (closed,) = store.close()
    assert committed.name == grown.name == closed.name
    assert len(answers(store.path(closed.name).read_bytes())) == 2


def test_crash_between_manifest_and_rename_leaves_the_file_closed(tmp_path: Path) -> None:
    positions = warc_store(tmp_path, max_bytes=3_000).append(
        [page(number, os.urandom(2_000)) for number in range(2)]
    )
    store = warc_store(tmp_path)
    store.recover(positions)
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(
        [positions[0].name, f"{positions[1].name}.open"]
    )


def test_file_left_open_beside_another_is_closed_with_it(tmp_path: Path) -> None:
    positions = [position for number in range(2) for position in warc_store(tmp_path).append([page(number)])]
    store = warc_store(tmp_path)
    store.recover(positions)
    (grown,) = store.append([page(3)])
    assert grown.name == positions[1].name
    assert store.close() == [
        WarcPosition(positions[0].name, positions[0].committed_bytes, is_open=False),
        WarcPosition(grown.name, grown.committed_bytes, is_open=False),
    ]


def test_complete_files_may_be_moved_away(tmp_path: Path) -> None:
    store = warc_store(tmp_path)
    store.append([page(1)])
    (closed,) = store.close()
    store.path(closed.name).unlink()
    again = warc_store(tmp_path)
    again.recover([closed])
    (fresh,) = again.append([page(2)])
    assert fresh.name != closed.name


def test_file_that_lost_committed_data_is_named(tmp_path: Path) -> None:
    (committed,) = warc_store(tmp_path).append([page(1)])
    os.truncate(tmp_path / f"{committed.name}.open", 10)
    with pytest.raises(StorageError, match=rf"{committed.name}.*10 of {committed.committed_bytes} bytes"):
        warc_store(tmp_path).recover([committed])


class Crash(BaseException):
    """The process dies here: nothing of it runs on."""


def crash_at(step: int) -> Callable[[str], None]:
    left = [step]

    def count(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    return count


OPERATION = st.tuples(
    st.sampled_from(["append", "append", "close"]),
    st.integers(1, 5),  # pages
    st.integers(0, 6),  # dies at this step; later than any, it lives
    st.booleans(),  # dies before the manifest knows
)


@settings(max_examples=25, deadline=None)
@given(st.lists(OPERATION, max_size=12))
def test_whatever_was_committed_is_there_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, operations: Sequence[tuple[str, int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("warc")
    manifest: dict[str, WarcPosition] = {}
    committed: list[str] = []
    store = warc_store(folder, max_bytes=2_500)
    for number, (operation, count, step, is_lost) in enumerate(operations):
        batch = [page(number * 10 + each, os.urandom(700)) for each in range(count)]
        store.on_step = crash_at(step)
        try:
            positions = store.append(batch) if operation == "append" else store.close()
            if is_lost:
                raise Crash
        except Crash:
            store = warc_store(folder, max_bytes=2_500)
            store.recover(list(manifest.values()))
        else:
            manifest |= {position.name: position for position in positions}
            committed += [each.url for each in batch] if operation == "append" else []
    store = warc_store(folder, max_bytes=2_500)
    store.recover(list(manifest.values()))
    files = {position.name + (".open" if position.is_open else "") for position in manifest.values()}
    assert {path.name for path in folder.iterdir()} == files
    found = [record for name in sorted(files) for record in answers((folder / name).read_bytes())]
    assert sorted(record.headers["WARC-Target-URI"] for record in found) == sorted(committed)


@pytest.mark.parametrize("is_open", [True, False])
def test_name_that_leads_elsewhere_is_refused(tmp_path: Path, is_open: bool) -> None:
    (tmp_path / "secret.open").write_bytes(bytes(100))
    store = WarcStore(tmp_path / "c" / "warc", software="s")
    with pytest.raises(StorageError, match="is no name of a file in it"):
        store.recover([WarcPosition("../../secret", 10, is_open=is_open)])
    assert (tmp_path / "secret.open").read_bytes() == bytes(100)
