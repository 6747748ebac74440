"""A confined process: what it reaches, and what its caller gets of one that dies, lies or takes too long."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue

import pytest

from sterna.errors import DamagedSegment, IndexUnusable, JailError, QueryError
from sterna.runtime.cell import confined as module
from sterna.runtime.cell import confined_line, kernel, seccomp
from sterna.runtime.cell.confined import Confined

pytestmark = [
    pytest.mark.skipif(kernel.landlock_abi() < 6, reason="this kernel's Landlock does not know signals"),
    pytest.mark.skipif(bool(seccomp.why_not()), reason="no seccomp"),
]

WORKS = """
import json, msgspec, os, signal, socket, sys, time
from pathlib import Path
from sterna import errors
from sterna.runtime.cell.confined_process import warn_caller

def zeros(request):
    yield bytes(int(request))

def temporary_folder(request):
    import tempfile
    place = Path(tempfile.gettempdir())
    (place / "left").write_text("x")
    yield json.dumps([str(place), os.environ["SQLITE_TMPDIR"], told_of(place.parent)]).encode()

def told_of(folder):
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        return "refused"

def numbers(request):
    for number in range(int(request)):
        yield b"%d" % number

def own_number(request):
    time.sleep(float(request or b"0"))
    yield str(os.getpid()).encode()

def end_here(request):
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""

def end_once(request):
    if not os.path.exists(request):
        open(request, "x").close()
        end = list(end_here(b""))
    yield b"lived"

def end_after_one(request):
    yield str(os.getpid()).encode()
    yield from end_here(b"")

def last_for_ever(request):
    yield str(os.getpid()).encode()
    time.sleep(600)

def warn(request):
    warn_caller("a segment is left out")
    yield b"done"

def fail(request):
    kind, *words = json.loads(request)
    if kind == "DamagedSegment":
        words[0] = Path(words[0])
    raise (getattr(errors, kind, None) or getattr(__import__("builtins"), kind))(*words)
    yield b""

def warn_without_end(request):
    while True:
        warn_caller("\\x1b[2J\\nsterna: run this")
        yield from ()

def count_and_sleep(request):
    count = int(Path(os.fsdecode(request)).read_text()) if os.path.exists(request) else 0
    Path(os.fsdecode(request)).write_text(str(count + 1))
    time.sleep(600)
    yield b""

def leave_a_child(request):
    if os.fork() == 0:
        os.setsid()
        time.sleep(30)
        os._exit(0)
    os._exit(0)
    yield b""

def stop_listening(request):
    for reply in (["data", b"deaf", []], ["done", b"", []]):
        body = msgspec.msgpack.encode(reply)
        os.write(int(sys.argv[1]), len(body).to_bytes(4, "big") + body)
    time.sleep(600)
    yield b""

def type_a_command(request):
    def told(place):
        try:
            with open(place, "wb", buffering=0) as terminal:
                for letter in b"id\\n":
                    fcntl.ioctl(terminal, termios.TIOCSTI, bytes([letter]))
        except OSError:
            return "refused"
        return "done"

    import fcntl, termios
    places = ["/dev/tty", "/dev/fd/1", f"/proc/{os.getppid()}/fd/1"]
    yield " ".join(map(told, places)).encode()

def write_raw(request):
    os.write(int(sys.argv[1]), request)
    time.sleep(600)
    yield b""

def prepare(argument):
    Path(argument, "prepared").write_text("before it was confined")
    return [Path(argument)]

def reach(request):
    asked = json.loads(request)

    def told(deed):
        try:
            deed()
        except PermissionError:
            return "refused"
        return "done"

    yield json.dumps({
        "reads": told(lambda: Path(asked["readable"], "a").read_text()),
        "writes": told(lambda: Path(asked["writable"], "b").write_text("x")),
        "writes what it reads": told(lambda: Path(asked["readable"], "b").write_text("x")),
        "reads a secret": told(lambda: Path(asked["outside"], "a").read_text()),
        "lists the working folder": told(lambda: os.listdir(asked["working"])),
        "lists the folder of the program": told(lambda: os.listdir(asked["program"])),
        "opens a socket": told(socket.socket),
        "signals its parent": told(lambda: os.kill(os.getppid(), 0)),
        "reads its parent's memory": told(lambda: open(f"/proc/{os.getppid()}/mem", "rb")),
        "environment": sorted(os.environ),
    }).encode()
"""


@pytest.fixture(scope="module", autouse=True)
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the works, on the path of modules."""
    folder = tmp_path_factory.mktemp("works")
    (folder / "confined_works.py").write_text(WORKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Confined]:
    with closing(Confined(writable=[tmp_path])) as found:
        yield found


def work(name: str) -> str:
    return f"confined_works:{name}"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


# --- calls


def test_frames_come_in_their_order_and_a_process_serves_many_calls(confined: Confined) -> None:
    frames = list(confined.stream(work("numbers"), b"1000"))
    assert frames == [b"%d" % number for number in range(1000)]
    assert confined.call(work("own_number"), b"") == confined.call(work("own_number"), b"")
    assert list(confined.stream(work("numbers"), b"0")) == []


def test_calls_of_several_threads_run_beside_each_other(confined: Confined) -> None:
    with ThreadPoolExecutor(2) as threads:
        numbers = set(threads.map(lambda _: confined.call(work("own_number"), b"0.5"), range(2)))
    assert len(numbers) == 2


def test_caller_that_stops_reading_ends_the_process(confined: Confined) -> None:
    frames = confined.stream(work("last_for_ever"), b"")
    pid = int(next(frames))
    assert is_alive(pid)
    frames.close()
    assert not is_alive(pid)


def test_close_ends_those_that_wait_and_later_those_at_work(confined: Confined) -> None:
    waiting = int(confined.call(work("own_number"), b""))
    frames = confined.stream(work("numbers"), b"2")
    assert next(frames) == b"0"
    confined.close()
    assert list(frames) == [b"1"]
    assert not is_alive(waiting)


def test_warnings_go_to_whoever_called(confined: Confined) -> None:
    told: list[str] = []
    assert confined.call(work("warn"), b"", warn=told.append) == b"done"
    assert told == ["a segment is left out"]


def test_process_that_was_forked_has_its_own(confined: Confined) -> None:
    ours = confined.call(work("own_number"), b"")
    pid = os.fork()
    if pid == 0:
        is_other = confined.call(work("own_number"), b"") != ours
        confined.close()
        os._exit(0 if is_other else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert confined.call(work("own_number"), b"") == ours


def test_errors_of_ours_keep_their_class_and_others_are_named(confined: Confined) -> None:
    with pytest.raises(QueryError, match=r"^there is no column$"):
        confined.call(work("fail"), b'["QueryError", "there is no column"]')
    with pytest.raises(DamagedSegment) as damaged:
        confined.call(work("fail"), b'["DamagedSegment", "/c/segments/x.parquet", "it is cut"]')
    assert (damaged.value.path, damaged.value.reason) == (Path("/c/segments/x.parquet"), "it is cut")
    with pytest.raises(IndexUnusable, match=r"^no index$") as unusable:
        confined.call(work("fail"), b'["IndexUnusable", "no index", "missing"]')
    assert unusable.value.reason == "missing"
    with pytest.raises(JailError, match="a confined process failed: KeyError: 'x'"):
        confined.call(work("fail"), b'["KeyError", "x"]')
    assert confined.call(work("own_number"), b"") == confined.call(work("own_number"), b"")


# --- what it reaches


def test_it_reaches_its_folders_and_nothing_else(
    works: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    folders = {name: tmp_path / name for name in ("readable", "writable", "outside", "working", "program")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "a").write_text("x")
    code = f"""
import json, os, sys
sys.path.append({str(works)!r})
from pathlib import Path
from sterna.runtime.cell.confined import Confined
folders = json.loads(sys.argv[1])
confined = Confined(Path(folders["readable"]), writable=[Path(folders["writable"])])
print(confined.call("confined_works:reach", sys.argv[1].encode()).decode())
"""
    (folders["program"] / "program.py").write_text(code)
    words = [
        sys.executable,
        str(folders["program"] / "program.py"),
        json.dumps({name: str(folder) for name, folder in folders.items()}),
    ]
    done = subprocess.run(words, cwd=folders["working"], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert set(said.pop("environment")) <= {"PYTHONPATH", "TMPDIR", "TZ", "SQLITE_TMPDIR", "LC_CTYPE"}
    assert {deed for deed, became in said.items() if became == "done"} == {"reads", "writes"}


def test_what_is_prepared_before_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "out").mkdir()
    setup = Confined(tmp_path / "c", prepare=work("prepare"), argument=str(tmp_path / "out"))
    with closing(setup) as confined:
        assert confined.call(work("end_once"), os.fsencode(tmp_path / "out" / "prepared")) == b"lived"


# --- those that die, lie, or take too long


def test_process_that_is_killed_before_it_answers_is_replaced(confined: Confined, tmp_path: Path) -> None:
    assert confined.call(work("end_once"), os.fsencode(tmp_path / "once")) == b"lived"
    with pytest.raises(JailError, match=r"cannot read .*: its confined process was ended by SIGKILL"):
        confined.call(work("end_here"), b"")
    assert confined.call(work("own_number"), b"")


def test_process_that_is_killed_among_its_frames_is_an_error_and_no_frame_comes_twice(
    confined: Confined,
) -> None:
    frames = confined.stream(work("end_after_one"), b"")
    assert int(next(frames))
    with pytest.raises(JailError, match="was ended by SIGKILL"):
        next(frames)


def test_process_that_was_killed_while_it_waited_costs_nothing(confined: Confined) -> None:
    pid = int(confined.call(work("own_number"), b""))
    os.kill(pid, signal.SIGKILL)
    assert int(confined.call(work("own_number"), b"")) != pid


def test_call_that_takes_too_long_is_ended(confined: Confined) -> None:
    frames = confined.stream(work("last_for_ever"), b"", seconds=0.5)
    pid = int(next(frames))
    with pytest.raises(JailError, match=r"took longer than its 0\.5 seconds"):
        next(frames)
    assert not is_alive(pid)


def test_call_that_takes_too_long_is_not_tried_again(confined: Confined, tmp_path: Path) -> None:
    with pytest.raises(JailError, match=r"took longer than its 0\.5 seconds"):
        confined.call(work("count_and_sleep"), os.fsencode(tmp_path / "counted"), seconds=0.5)
    assert (tmp_path / "counted").read_text() == "1"


def test_process_that_left_its_line_to_another_is_ended_in_time(confined: Confined) -> None:
    began = time.monotonic()
    with pytest.raises(JailError):
        confined.call(work("leave_a_child"), b"", seconds=1)
    assert time.monotonic() - began < 8


def test_process_that_no_longer_listens_is_ended_in_time(confined: Confined) -> None:
    assert confined.call(work("stop_listening"), b"") == b"deaf"
    began = time.monotonic()
    with pytest.raises(JailError, match="took longer"):
        confined.call(work("own_number"), b" " * 10_000_000, seconds=1)
    assert time.monotonic() - began < 5


def test_time_in_which_nobody_reads_does_not_count(confined: Confined) -> None:
    frames = confined.stream(work("numbers"), b"100000", seconds=5)
    next(frames)
    process = confined.stream(work("own_number"), b"", seconds=0.5)
    pid = int(next(process))
    time.sleep(0.7)
    assert is_alive(pid)
    assert list(process) == []
    frames.close()


@pytest.mark.parametrize(("count", "sent"), [(0, "no frame"), (10**12, "several frames")])
def test_call_is_answered_by_one_frame(confined: Confined, count: int, sent: str) -> None:
    with pytest.raises(JailError, match=f"sent {sent}, asked for one"):
        confined.call(work("numbers"), b"%d" % count)


def test_warnings_are_bounded_and_harmless(confined: Confined) -> None:
    told: list[str] = []
    with pytest.raises(JailError, match="sent too many warnings"):
        confined.call(work("warn_without_end"), b"", warn=told.append)
    assert len(told) == module.MOST_WARNINGS
    assert told[0] == r"\x1b[2J\nsterna: run this"


def test_errors_are_harmless_to_a_terminal(confined: Confined) -> None:
    with pytest.raises(QueryError) as wrong:
        confined.call(
            work("fail"), b'["QueryError", "column 8\\n  SELECT \\u001b[2J\\n         ^\\nsterna: run"]'
        )
    assert str(wrong.value).split("\n") == ["column 8", r"  SELECT \x1b[2J", "         ^", "  sterna: run"]


def test_it_has_no_terminal(tmp_path: Path, works: Path) -> None:
    """Loose code could type commands into its caller's."""
    code = f"""
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.path.append({str(works)!r})
from pathlib import Path
from sterna.runtime.cell.confined import Confined
print(Confined(Path({str(tmp_path)!r})).call("confined_works:type_a_command", b"").decode())
"""
    controller, terminal = pty.openpty()
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, start_new_session=True, stdin=terminal, stdout=terminal, stderr=terminal
    ) as caller:
        assert caller.wait(30) == 0
    said = os.read(controller, 10_000).decode()
    os.close(controller)
    os.close(terminal)
    assert said.strip() == "refused refused refused"


def test_folder_that_another_replaced_is_opened_anew(confined: Confined, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with closing(Confined(tmp_path / "c")) as reader:
        before = reader.call(work("own_number"), b"")
        (tmp_path / "c").rename(tmp_path / "old")
        (tmp_path / "c").mkdir()
        assert reader.call(work("own_number"), b"") != before


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff\xff\xff", "larger than"),
        (b"\x00\x00\x00\x05\xff\xff\xff\xff\xff", "malformed"),
        (b"\x00\x00\x00\x01\x90", "malformed"),
        (b"\x00\x00\x00\x06\x91\xa4what", "malformed"),
        (b"\x00\x00\x07\xde\x93\xa7warning\xc4\x00\xdc\x07\xd0" + b"\xa0" * 2_000, "more than 1,000 values"),
    ],
    ids=["a frame of 4 GiB", "no msgpack", "no reply", "an unknown kind", "a frame of words"],
)
def test_process_that_sends_what_it_must_not_is_ended(confined: Confined, sent: bytes, said: str) -> None:
    with pytest.raises(JailError, match=f"sent what it must not .*{said}"):
        confined.call(work("write_raw"), sent)


def test_forged_error_is_of_no_class_but_ours(confined: Confined) -> None:
    reply = b"\x93\xa5error\xc4\x00\x92\xaasubprocess\xa4text"
    with pytest.raises(JailError, match="a confined process failed: subprocess: text"):
        confined.call(work("write_raw"), len(reply).to_bytes(4, "big") + reply)


def test_process_ends_with_its_caller(works: Path, tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.append({str(works)!r})
from pathlib import Path
from sterna.runtime.cell.confined import Confined
frames = Confined(Path({str(tmp_path)!r})).stream("confined_works:last_for_ever", b"")
print(next(frames).decode(), flush=True)
sys.stdin.read()
"""
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        pid = int(caller.stdout.readline())
        assert is_alive(pid)
        caller.kill()
    wait_until(lambda: not is_alive(pid))


def test_two_that_were_killed_while_they_waited_cost_nothing(confined: Confined) -> None:
    with ThreadPoolExecutor(2) as threads:
        numbers = set(threads.map(lambda _: confined.call(work("own_number"), b"0.5"), range(2)))
    for number in numbers:
        os.kill(int(number), signal.SIGKILL)
    wait_until(lambda: not any(is_alive(int(number)) for number in numbers))
    assert confined.call(work("own_number"), b"") not in numbers


def test_killed_ones_end_calls_in_other_threads_and_are_not_replaced(confined: Confined) -> None:
    begun = Queue[int]()

    def call() -> None:
        frames = confined.stream(work("last_for_ever"), b"")
        begun.put(int(next(frames)))
        next(frames)

    with ThreadPoolExecutor(1) as thread:
        calling = thread.submit(call)
        pid = begun.get(timeout=30)
        confined.kill()
        with pytest.raises(JailError, match="was ended by SIGKILL"):
            calling.result(20)
    assert not is_alive(pid)
    with pytest.raises(JailError, match="was ended"):
        confined.call(work("own_number"), b"")


def test_frame_is_bounded_as_the_caller_says(tmp_path: Path) -> None:
    with closing(Confined(tmp_path, most_bytes=10_000)) as confined:
        assert confined.call(work("zeros"), b"9000") == bytes(9_000)
        with pytest.raises(JailError, match=r"a message of 11,\d{3} bytes is larger than 10,000"):
            confined.call(work("zeros"), b"11000")


# --- a program that forks


@contextmanager
def forked(work: Callable[[], None]) -> Iterator[int]:
    """A child of this process that does this, and then waits until it is killed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(theirs, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(theirs)
    try:
        yield os.read(ours, 1) == b"x"
    finally:
        os.close(ours)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_close_does_not_wait_for_the_children_of_the_program(confined: Confined) -> None:
    pid = int(confined.call(work("own_number"), b""))
    with forked(lambda: None):
        began = time.monotonic()
        confined.close()
        assert time.monotonic() - began < confined_line.CLOSE_SECONDS / 2
    assert not is_alive(pid)


def test_forked_child_has_processes_of_its_own_and_leaves_the_others_alone(confined: Confined) -> None:
    pid = confined.call(work("own_number"), b"")
    frames = confined.stream(work("numbers"), b"3")
    assert next(frames) == b"0"

    def use_and_end() -> None:
        assert confined.call(work("own_number"), b"") != pid
        frames.close()
        confined.kill()

    with forked(use_and_end) as is_done:
        assert is_done
        assert list(frames) == [b"1", b"2"]
        assert confined.call(work("own_number"), b"") == pid


# --- temporary files


def test_each_process_has_a_folder_of_its_own_which_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = []
    for _ in range(2):
        with closing(Confined(tmp_path / "a")) as confined:
            place, of_sqlite, around = json.loads(confined.call(work("temporary_folder"), b""))
            assert (of_sqlite, around) == (place, "refused")
            assert (Path(place) / "left").read_text() == "x"
        assert not Path(place).exists()
        found.append(place)
    assert len(set(found)) == 2


def test_folder_that_a_killed_caller_left_goes_with_the_next_call(
    works: Path, tmp_path: Path, confined: Confined
) -> None:
    code = f"""
import sys
sys.path.append({str(works)!r})
from pathlib import Path
from sterna.runtime.cell.confined import Confined
print(Confined(Path({str(tmp_path)!r})).call("confined_works:temporary_folder", b"").decode(), flush=True)
sys.stdin.read()
"""
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        place = Path(json.loads(caller.stdout.readline())[0])
        confined.call(work("own_number"), b"")
        assert (place / "left").exists()  # it is in use
        caller.kill()
    with closing(Confined(tmp_path)) as another:
        another.call(work("own_number"), b"")
    assert not place.exists()
