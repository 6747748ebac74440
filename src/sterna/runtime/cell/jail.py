"""The jail: after enter() a process can compute, talk over one socket, and do nothing else.

Import everything before: afterwards opening a file, even for a late import or the lines of a traceback, ends
the process. The warm parent gives up its rights too, once it has imported all. `docs/decisions/010-jail.md`
says what the jail stops and what it does not.
"""

import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import kernel, refusals, seccomp

DEFAULT_MEMORY_BYTES = 512 * 1024**2
DEFAULT_CPU_SECONDS = 3600.0
STACK_BYTES = 8 * 1024**2
NOBODY = 65534
TRIAL_SECONDS, TRIAL_BYTES = 20.0, 1024**4
# No network, no message queues, no host name of its own, and a read-only filesystem. No process namespace:
# the host must know its cells by their numbers.
BUBBLEWRAP = (
    "--die-with-parent",
    *("--ro-bind", "/", "/"),
    *("--dev", "/dev"),
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--",
)

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_MDWE = 1, 4, 38, 65
_CLOSE_RANGE = 436  # the same on every architecture
_READ_IMPLIES_EXEC, _ASK = 0x40_0000, 0xFFFF_FFFF
_NOTHING_OF = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
)
# What a confined command may use of the system: programs, libraries, time zones, counters; not /etc.
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/proc", "/sys")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
# Capabilities 0 to 7: over files, to signal its own cells, and to make them another user.
_FILES_AND_CELLS = 0xFF
_LEAST_ABI = 2  # since then a file may be renamed into another folder
_confined = False  # set by confine(), for good
_TRIAL = "from sterna.runtime.cell import jail; jail.try_out()"


class JailLimits(Record, frozen=True, kw_only=True):
    """What a cell may use."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES  # address space, beyond what it inherits from the warm parent
    # Rounded up, because the kernel counts whole seconds; math.inf for no limit.
    cpu_seconds: float = DEFAULT_CPU_SECONDS


class Protection(Record, frozen=True, kw_only=True):
    """What this machine offers against foreign crawlers, and what is missing, in words."""

    has_seccomp: bool
    landlock_abi: int  # 0 for none
    bubblewrap: str  # its path
    has_bubblewrap: bool  # it is installed and works
    is_root: bool
    kernel: str
    machine: str
    missing: tuple[str, ...]


def give_up_rights() -> None:
    """Leaves this process, and those that it starts, without another user, capabilities, files or network.

    What is open stays open. JailError if that fails.
    """
    try:
        _become_nobody()
        _give_up_privileges()
        kernel.restrict_by_landlock()
    except OSError as error:
        raise _no_jail(error) from error


def confine(*, readable: Iterable[Path], writable: Iterable[Path]) -> str:
    """Leaves this process without network, and with no files but these and the system's, as far as possible.

    It keeps its user, and can go on to start threads and other processes, which are confined as well. Call it
    before threads are started: Landlock applies to the thread that calls it. Returns what the kernel
    lacks, in words; JailError if something fails.
    """
    global _confined  # noqa: PLW0603 - it is a state of the process
    _confined = True
    missing = []
    try:
        kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
        kernel.drop_capabilities(but=_FILES_AND_CELLS)
        if kernel.landlock_abi() >= _LEAST_ABI:
            kernel.restrict_by_landlock(
                readable=(*map(Path, _SYSTEM), *readable), writable=(*map(Path, _DEVICES), *writable)
            )
        else:
            missing.append("the kernel has no Landlock, so it can open all files of its user")
    except OSError as error:
        raise _no_jail(error) from error
    if reason := seccomp.why_not():
        missing.append(f"{reason}, so it has the network")
    else:
        seccomp.install(refusals.refusal_of)
    return f"{'; '.join(missing)}; see `sterna doctor`" if missing else ""


def limit(limits: JailLimits, *, parent: int, inherited_bytes: int) -> None:
    """Limits memory and CPU time of this process, in its own session, and ties its life to its parent.

    `inherited_bytes` is the address space that it was forked with, which its limit does not count.
    """
    os.setsid()
    _lower(resource.RLIMIT_AS, inherited_bytes + limits.memory_bytes)
    if math.isfinite(limits.cpu_seconds):
        seconds = math.ceil(limits.cpu_seconds)
        _lower(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU, then SIGKILL if that is blocked
    _lower(resource.RLIMIT_CORE, 0)
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)


def enter(
    limits: JailLimits,
    *,
    keep: int,
    parent: int,
    inherited_bytes: int,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Jails this process for good, with nothing open but the descriptor `keep`; JailError if that fails.

    Its standard input must be /dev/null, which then replaces output and errors too. No thread can be started
    afterwards, so `prepare` is called before the last step, the seccomp filter: threads that it starts are
    jailed like this one.
    """
    if reason := seccomp.why_not():
        raise _no_jail(reason)
    assert keep > 2
    _forget_surroundings()
    give_up_rights()
    try:
        # After the change of user, which would undo the tie to the parent.
        limit(limits, parent=parent, inherited_bytes=inherited_bytes)
        if prepare:
            prepare()
        for standard in (1, 2):
            os.dup2(0, standard)
        close_all_but(keep)
        for kind in _NOTHING_OF:
            _lower(kind, 0)
        _lower(resource.RLIMIT_STACK, STACK_BYTES)
    except OSError as error:
        raise _no_jail(error) from error
    seccomp.install()


def _forget_surroundings() -> None:
    os.environ.clear()
    # Without TZ the C library opens /etc/localtime to tell the time of day.
    os.environ["TZ"] = "UTC0"
    time.tzset()
    # Python opens source files to print an error; without these streams it prints none.
    sys.stdin = sys.stdout = sys.stderr = None


def _become_nobody() -> None:
    if 0 not in os.getresuid():
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise JailError(
            f"cannot sandbox a process: root cannot become user {NOBODY} ({error.strerror});"
            " run Sterna as an ordinary user"
        ) from error


def _give_up_privileges() -> None:
    kernel.drop_capabilities()
    kernel.prctl(_PR_SET_DUMPABLE, 0)
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    kernel.personality(kernel.personality(_ASK) & ~_READ_IMPLIES_EXEC)
    # No page becomes executable; before Linux 6.3 the filter alone prevents it.
    with suppress(OSError):
        kernel.prctl(_PR_SET_MDWE, 1)


def close_all_but(keep: int) -> None:
    """Closes every descriptor but this one and the three standard ones."""
    try:
        for first, last in ((3, keep - 1), (keep + 1, 2**32 - 1)):
            if first <= last:
                kernel.call(_CLOSE_RANGE, first, last, 0)
    except OSError:  # before Linux 5.9, which has no Landlock that would hide /proc
        for path in list(Path("/proc/self/fd").iterdir()):
            if int(path.name) not in (0, 1, 2, keep):
                with suppress(OSError):  # the descriptor of the listing itself is closed by now
                    os.close(int(path.name))


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Sets a limit, but never above the present one."""
    most = resource.getrlimit(kind)[1]
    wanted = (soft, soft if hard is None else hard)
    resource.setrlimit(kind, wanted if most < 0 else (min(wanted[0], most), min(wanted[1], most)))


def python_environment() -> dict[str, str]:
    """What Python needs to find the same modules, and nothing that a process could leak."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONHOME") if name in os.environ}
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **kept}


def bubblewrap() -> tuple[str, ...]:
    """The command to run a warm parent in, if it is installed; a confined process cannot use it."""
    path = None if _confined else shutil.which("bwrap")
    return (path, *BUBBLEWRAP) if path else ()


def try_out() -> None:
    """Enters the jail and makes a forbidden call; if this returns, there is no jail."""
    try:
        enter(JailLimits(memory_bytes=TRIAL_BYTES), keep=os.dup(0), parent=os.getppid(), inherited_bytes=0)
    except JailError as error:
        os.write(1, str(error).encode())
        return
    os.getppid()


def check() -> None:
    """Tries the jail out in a child; JailError if it does not hold."""
    if reason := seccomp.why_not():
        raise _no_jail(reason)
    pid = os.fork()
    if pid == 0:
        try:
            try_out()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != -signal.SIGSYS:
        raise _no_jail(_not_held(code))


def _no_jail(reason: object) -> JailError:
    return JailError(f"cannot sandbox a process: {reason}; see `sterna doctor`")


def _not_held(code: int) -> str:
    return f"the jail does not hold here (its test ended with exit code {code})"


def protection() -> Protection:
    """What this machine offers; slow, because everything is tried."""
    code, why_no_jail = _run(sys.executable, "-P", "-c", _TRIAL)
    if code == -signal.SIGSYS:
        why_no_jail = ""
    elif not why_no_jail:
        why_no_jail = _not_held(code)
    version = kernel.landlock_abi()
    path = shutil.which("bwrap") or ""
    works = bool(path) and _run(path, *BUBBLEWRAP, "true")[0] == 0
    machine = os.uname()
    missing = []
    if why_no_jail:
        missing.append(f"{why_no_jail}: foreign crawlers are refused, your own run without a jail")
    if not version:
        missing.append("the kernel has no Landlock: the seccomp filter alone denies files to cells")
    elif version < 6:
        missing.append(
            f"Landlock ABI {version} does not cover signals (6 does): the seccomp filter alone stops them"
        )
    if not path:
        missing.append("bubblewrap is not installed: no namespaces around the cells (apt install bubblewrap)")
    elif not works:
        missing.append(f"{path} does not work here: no namespaces around the cells")
    return Protection(
        has_seccomp=not why_no_jail,
        landlock_abi=version,
        bubblewrap=path,
        has_bubblewrap=works,
        is_root=os.geteuid() == 0,
        kernel=f"{machine.sysname} {machine.release}",
        machine=machine.machine,
        missing=tuple(missing),
    )


def _run(*command: str) -> tuple[int, str]:
    """The exit code of a command and what it printed, or why it did not run."""
    try:
        done = subprocess.run(  # noqa: S603 - our own
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode(errors="replace").strip()
