"""The audit log: lines that hold on to each other, through kills, full disks and several processes."""

import json
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clocks import StillClock

from sterna.errors import StorageError
from sterna.host.owner.audit import AUDIT, MAX_FILES, MAX_TEXT, Audit, hash_of
from sterna.host.owner.verification import AuditReport, tail, verify

FORK = multiprocessing.get_context("fork")


def log_of(folder: Path, lines: int = 5, **fields: int) -> Path:
    """A log of so many lines: who came, and what he took."""
    audit = Audit(folder / AUDIT, clock=StillClock(), **fields)
    audit.note("host-started", site="http://site.test")
    for number in range(1, lines):
        audit.note("visit-ended", home="ada", crawler="c", pages=number, sent_bytes=10, cpu_seconds=0.5)
    return audit.path


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def write_lines(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def number_in(head: Path) -> int:
    text = head.read_text() if head.exists() else ""
    return int(json.loads(text)["n"]) if text else 0


def write_many(path: Path, home: str, count: int, **fields: int) -> None:
    audit = Audit(path, clock=StillClock(), **fields)
    for _ in range(count):
        audit.note("home-refused", home=home)


def faults_of(report: AuditReport) -> list[str]:
    return [f"{fault.line}: {fault.what}" if fault.file else fault.what for fault in report.faults]


# -- writing -----------------------------------------------------------------------------------------------


def test_each_line_carries_its_number_time_and_the_hash_of_the_one_before(tmp_path: Path) -> None:
    path = log_of(tmp_path, 3)
    lines = lines_of(path)
    entries = [json.loads(line) for line in lines]
    assert [entry["n"] for entry in entries] == [1, 2, 3]
    assert entries[0] == {
        "n": 1,
        "time": "1970-01-01T00:16:40.000Z",
        "event": "host-started",
        "site": "http://site.test",
        "before": "",
    }
    assert [entry["before"] for entry in entries[1:]] == [hash_of(line) for line in lines[:-1]]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_suffix(".head").stat().st_mode & 0o777 == 0o600


def test_a_whole_log_is_whole_and_summed_up(tmp_path: Path) -> None:
    path = log_of(tmp_path, 5)
    Audit(path, clock=StillClock()).note("home-refused", home="mallory", count=7)
    report = verify(path)
    assert report.is_whole
    assert report.remarks == ()
    assert (report.lines, report.first, report.last) == (6, 1, 6)
    assert report.hash == hash_of(lines_of(path)[-1])
    assert report.events == {"home-refused": 7, "host-started": 1, "visit-ended": 4}
    ada, mallory = report.homes["ada"], report.homes["mallory"]
    assert (ada.visits, ada.pages, ada.sent_bytes, ada.cpu_seconds) == (4, 10, 40, 2.0)
    assert (mallory.visits, mallory.refused) == (0, 7)


def test_words_of_strangers_stay_within_their_line_and_are_harmless(tmp_path: Path) -> None:
    audit = Audit(tmp_path / AUDIT, clock=StillClock())
    audit.note("visit-taken", crawler='\x1b[2J"\n{"n":2,"event":"x"}\x9b\u202e\ud800', home="x" * 10_000)
    audit.note("visit-taken", cpu_seconds=1.0, share=float("nan"))
    first, second = lines_of(audit.path)
    assert all(0x20 <= byte < 0x7F for byte in first)
    assert len(json.loads(first)["home"]) == MAX_TEXT + 3
    assert json.loads(second)["share"] == "nan"
    assert verify(audit.path).is_whole


def test_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / AUDIT).mkdir()
    with pytest.raises(StorageError, match=r"cannot write audit log"):
        Audit(tmp_path / AUDIT, clock=StillClock()).note("host-started")


def test_log_is_no_link_to_another_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / AUDIT).symlink_to(other)
    with pytest.raises(StorageError):
        Audit(tmp_path / AUDIT, clock=StillClock()).note("host-started")
    assert other.read_text() == "mine"


def test_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk's: a write is cut short, and then refused."""
    path = log_of(tmp_path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(StorageError, match="cannot write"):
            Audit(path, clock=StillClock()).note("visit-taken", home="ada")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    Audit(path, clock=StillClock()).note("visit-taken", home="ada")
    assert verify(path).is_whole


def test_processes_take_turns(tmp_path: Path) -> None:
    path = tmp_path / AUDIT
    writers = [FORK.Process(target=write_many, args=(path, f"home-{number}", 40)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    report = verify(path)
    assert report.is_whole
    assert {name: sums.refused for name, sums in report.homes.items()} == dict.fromkeys(
        ("home-0", "home-1", "home-2"), 40
    )


# -- what others did to it ---------------------------------------------------------------------------------


def change_third(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"pages":2', b'"pages":9')


def take_out_third(lines: list[bytes]) -> None:
    del lines[2]


def take_out_two(lines: list[bytes]) -> None:
    del lines[1:3]


def cut_off_tail(lines: list[bytes]) -> None:
    del lines[3:]


def change_last(lines: list[bytes]) -> None:
    lines[-1] = lines[-1].replace(b'"pages":4', b'"pages":9')


def put_garbage_in(lines: list[bytes]) -> None:
    lines.insert(2, b"\xff\x00 this is no JSON")


def put_long_line_in(lines: list[bytes]) -> None:
    lines.insert(2, b"x" * 1_000_000)


def turn_two_round(lines: list[bytes]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def say_one_twice(lines: list[bytes]) -> None:
    lines.insert(2, lines[1])


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (change_third, "3: was changed: the hash in line 4 does not match it"),
        (take_out_third, "3: line 3 is missing before this line"),
        (take_out_two, "2: lines 2 to 3 are missing before this line"),
        (cut_off_tail, "3: is the last, but lines 4 to 5 are missing after it: the end was cut off"),
        (change_last, "line 5 is not the one in the head file: it was changed, or the log was replaced"),
        (put_garbage_in, "3: is not a line of an audit log: it was changed or inserted"),
        (put_long_line_in, "3: is not a line of an audit log: it was changed or inserted"),
        (turn_two_round, "2: line 2 is missing before this line"),
        (say_one_twice, "3: has the number 2 instead of 3: it does not belong here"),
    ],
)
def test_harm_to_the_log_is_found(tmp_path: Path, harm: Callable[[list[bytes]], None], found: str) -> None:
    path = log_of(tmp_path)
    lines = lines_of(path)
    harm(lines)
    write_lines(path, lines)
    report = verify(path)
    assert not report.is_whole
    assert faults_of(report)[0] == found


def test_no_byte_can_be_changed_and_no_end_cut_off_unseen(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not verify(path).is_whole, place
        path.write_bytes(whole[:place])
        assert not verify(path).is_whole, place
    path.write_bytes(whole)
    assert verify(path).is_whole


@pytest.mark.parametrize(
    "head", [b"", b"{}", b"\xff" * 300, b'{"n":-1,"size":-5}', b'{"n":1e300}', b"[" * 250]
)
def test_damaged_head_breaks_nothing_and_is_found(tmp_path: Path, head: bytes) -> None:
    path = log_of(tmp_path)
    path.with_suffix(".head").write_bytes(head)
    assert not verify(path).is_whole
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert report.events["host-started"] == 2
    assert [fault.what[:39] for fault in report.faults] == ["says that the head file was lost: lines"]


def test_harm_is_still_found_when_the_host_has_gone_on(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    write_lines(path, lines_of(path)[:3])
    Audit(path, clock=StillClock()).note("visit-taken", home="ada")
    assert faults_of(verify(path)) == ["4: lines 4 to 5 are missing before this line"]


def test_log_cut_within_a_line_goes_on_in_a_line_of_its_own(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    assert not verify(path).is_whole
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert faults_of(report) == ["6: line 5 is missing before this line"]
    assert report.lines == 6


def test_deleted_log_is_found_by_its_head(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.unlink()
    assert "lines 1 to 5 are missing" in faults_of(verify(path))[0]
    Audit(path, clock=StillClock()).note("host-started")
    assert faults_of(verify(path)) == ["1: lines 1 to 5 are missing before this line"]


def test_log_replaced_by_another_whole_one_is_found(tmp_path: Path) -> None:
    path, other = log_of(tmp_path / "a", 5), log_of(tmp_path / "b", 8)
    lines = lines_of(other)
    lines[1] = lines[1].replace(b"ada", b"bob")
    forged: list[bytes] = []
    for line in lines:  # with all hashes made anew
        entry = json.loads(line) | {"before": hash_of(forged[-1]) if forged else ""}
        forged.append(json.dumps(entry, separators=(",", ":")).encode())
    write_lines(path, forged)
    assert faults_of(verify(path)) == [
        "line 5 is not the one in the head file: it was changed, or the log was replaced"
    ]


def test_log_replaced_with_its_head_is_found_by_a_hash_kept_elsewhere(tmp_path: Path) -> None:
    path, other = log_of(tmp_path / "a"), Audit(tmp_path / "b" / AUDIT, clock=StillClock())
    noted = verify(path)
    assert verify(path, expected=(noted.last, noted.hash)).is_whole
    Audit(path, clock=StillClock()).note("host-stopped")
    assert verify(path, expected=(noted.last, noted.hash)).is_whole
    for _ in range(9):
        other.note("visit-ended", home="bob")
    for suffix in (".jsonl", ".head"):
        path.with_suffix(suffix).write_bytes(other.path.with_suffix(suffix).read_bytes())
    assert verify(path).is_whole
    found = faults_of(verify(path, expected=(noted.last, noted.hash)))
    assert found == ["line 5 does not have the hash that was noted: the log was replaced"]


def test_lost_head_is_found_and_remembered(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.with_suffix(".head").unlink()
    assert "the head file is missing" in faults_of(verify(path))[0]
    Audit(path, clock=StillClock()).note("host-started")
    assert faults_of(verify(path)) == [
        "6: says that the head file was lost: lines may have been cut off before it"
    ]


def test_there_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no audit log in"):
        verify(tmp_path / AUDIT)


# -- what a killed process leaves --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 40, -1])
def test_torn_last_line_is_closed_and_said(tmp_path: Path, size: int) -> None:
    """Of a line some bytes, or all but its line break, are there; the head knows nothing of it."""
    path = log_of(tmp_path, 3)
    head = path.with_suffix(".head").read_bytes()
    Audit(path, clock=StillClock()).note("visit-taken", home="ada")
    lines = lines_of(path)
    path.write_bytes(b"".join(line + b"\n" for line in lines[:3]) + lines[3][: size if size > 0 else None])
    path.with_suffix(".head").write_bytes(head)
    torn = verify(path)
    assert torn.is_whole
    assert "is incomplete" in torn.remarks[0].what
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert report.is_whole
    assert report.events["line-torn"] == 1
    assert [remark.line for remark in report.remarks] == [4]
    assert (report.lines, report.last) == (5, 5)


def test_line_before_a_torn_one_cannot_be_changed_unseen(tmp_path: Path) -> None:
    path = log_of(tmp_path, 3)
    with path.open("ab") as file:
        file.write(b'{"n":4,"ti')
    Audit(path, clock=StillClock()).note("host-started")
    lines = lines_of(path)
    lines[2] = lines[2].replace(b'"pages":2', b'"pages":9')
    write_lines(path, lines)
    assert faults_of(verify(path)) == ["3: was changed: the hash in line 4 does not match it"]


def test_kill_with_the_very_first_line_is_no_harm(tmp_path: Path) -> None:
    path = log_of(tmp_path, 1)
    path.with_suffix(".head").write_bytes(b"{}")
    assert verify(path).is_whole
    Audit(path, clock=StillClock()).note("host-started")
    assert verify(path).is_whole


def test_line_that_the_head_does_not_know_yet_is_no_harm(tmp_path: Path) -> None:
    path = log_of(tmp_path, 3)
    head = path.with_suffix(".head").read_bytes()
    Audit(path, clock=StillClock()).note("visit-taken", home="ada")
    path.with_suffix(".head").write_bytes(head)
    assert verify(path).is_whole
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert report.is_whole
    assert report.last == 5


def test_kill_in_the_middle_of_writing_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / AUDIT
    for number in range(10):
        writer = FORK.Process(
            target=write_many, args=(path, "x" * 300, 1_000_000), kwargs={"rotate_bytes": 20_000}
        )
        writer.start()
        while number_in(path.with_suffix(".head")) < 30 * (number + 1):
            time.sleep(0.001)
        writer.kill()
        writer.join()
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert report.is_whole, faults_of(report)
    assert report.lines > 300


# -- files that are full -----------------------------------------------------------------------------------


def test_full_file_is_put_aside_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = log_of(tmp_path, 40, rotate_bytes=1_000)
    full = sorted(tmp_path.glob(f"{AUDIT}.*"))
    assert len(full) > 3
    report = verify(path)
    assert report.is_whole
    assert (report.lines, len(report.files)) == (40, len(full) + 1)
    full[1].write_bytes(full[1].read_bytes().replace(b'"home":"ada"', b'"home":"bob"', 1))
    assert not verify(path).is_whole


def test_missing_full_file_is_found(tmp_path: Path) -> None:
    path = log_of(tmp_path, 40, rotate_bytes=1_000)
    path.with_name(f"{AUDIT}.2").unlink()
    assert "are missing before this line" in faults_of(verify(path))[0]
    path.with_name(f"{AUDIT}.1").unlink()
    assert "are missing before this line" in faults_of(verify(path))[0]


def test_oldest_files_go_and_that_is_no_fault(tmp_path: Path) -> None:
    path = log_of(tmp_path, 150, rotate_bytes=700)
    assert len(list(tmp_path.glob(f"{AUDIT}.*"))) == MAX_FILES
    report = verify(path)
    assert report.is_whole, faults_of(report)
    assert report.first > 1
    assert report.last == 150


def test_kill_between_two_files_is_no_harm(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.rename(path.with_name(f"{AUDIT}.1"))
    Audit(path, clock=StillClock()).note("host-started")
    report = verify(path)
    assert report.is_whole
    assert report.lines == 6


def test_tail_gives_the_last_whole_lines(tmp_path: Path) -> None:
    path = log_of(tmp_path, 9)
    assert [json.loads(line)["n"] for line in tail(path, 3)] == [7, 8, 9]
    with path.open("ab") as file:
        file.write(b'{"n":10,')
    assert [json.loads(line)["n"] for line in tail(path, 2)] == [8, 9]
    assert tail(tmp_path / "nothing", 3) == []
