"""The filter of system calls of a confined process: it refuses (EPERM) what Landlock does not cover.

Parsers of collections need files, threads and memory maps, so all other calls are allowed. Landlock restricts
the files that can be opened; it says nothing about owners, modes and times, about what the kernel shares
between the processes of a user, and about its rarely used parts.
"""

import errno
import socket

from sterna.runtime.cell.seccomp import (
    ALLOW,
    ARCHITECTURE,
    JUMP_FROM,
    JUMP_IF_EQUAL,
    KILL,
    LOAD,
    MACHINES,
    NUMBER,
    RETURN,
    Check,
    Machine,
    low,
    step,
    steps_of,
)

_ERROR = 0x0005_0000  # SECCOMP_RET_ERRNO
REFUSE, MISSING = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
_X32 = 0x4000_0000  # this bit marks the numbers of another set of calls on x86_64

# The numbers on x86_64 and on aarch64, which lacks some.
Numbers = tuple[int | None, int | None]

REFUSED: dict[str, Numbers] = {
    # Connections. What a process has is inherited: the line to its caller, or the socket of `sterna serve`.
    "socket": (41, 198),
    "connect": (42, 203),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Owners, modes, times and attributes of files, for which Landlock has no right.
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "open_by_handle_at": (304, 265),
    # Keys, memory and messages that processes of a user share.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # Parts of the kernel that no parser needs.
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
}

_FILE_FLAGS = (0x4008_6602, 0x4004_6602, 0x401C_5820)  # FS_IOC_SETFLAGS, that of 32 bits, FS_IOC_FSSETXATTR
_TYPING = (0x5412, 0x541C)  # TIOCSTI; TIOCLINUX, which can paste: commands for the user's shell
_NAMESPACES = 0x7E02_0000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_ITSELF = 0  # as the number of a process or thread
_SOCKET_FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK

# Calls that are refused unless their arguments pass.
LIMITED: dict[str, tuple[Numbers, tuple[Check, ...]]] = {
    # A pair of datagram sockets can send to any other of the machine.
    "socketpair": ((53, 199), (low(1, socket.SOCK_STREAM, socket.SOCK_SEQPACKET, but=_SOCKET_FLAGS),)),
    # With the limits of another process it could be killed.
    "prlimit64": ((302, 261), (low(0, _ITSELF),)),
    "setpriority": ((141, 140), (low(0, _PRIO_PROCESS), low(1, _ITSELF))),
    "ioprio_set": ((251, 30), (low(0, _IOPRIO_WHO_PROCESS), low(1, _ITSELF))),
    "sched_setaffinity": ((203, 122), (low(0, _ITSELF),)),
    "sched_setparam": ((142, 118), (low(0, _ITSELF),)),
    "sched_setscheduler": ((144, 119), (low(0, _ITSELF),)),
    "sched_setattr": ((314, 274), (low(0, _ITSELF),)),
    "clone": ((56, 220), (low(0, 0, but=0xFFFF_FFFF & ~_NAMESPACES),)),
}
# Its arguments lie in memory, where no filter sees them; the C library then uses clone.
_CLONE3: Numbers = (435, 435)
_IOCTL: Numbers = (16, 29)


def refusal_of(machine: Machine) -> bytes:
    """The BPF program that refuses all of this, and allows everything else."""
    at = list(MACHINES.values()).index(machine)
    code = [
        step(LOAD, ARCHITECTURE),
        step(JUMP_IF_EQUAL, machine.mark, then=1),
        step(RETURN, KILL),
        step(LOAD, NUMBER),
        step(JUMP_FROM, _X32, otherwise=1),
        step(RETURN, REFUSE),
    ]
    for numbers in REFUSED.values():
        code += _block(numbers[at], [step(RETURN, REFUSE)])
    for numbers, checks in LIMITED.values():
        tests = [each for check in checks for each in steps_of(check, otherwise=REFUSE)]
        code += _block(numbers[at], [*tests, step(RETURN, ALLOW)])
    code += _block(_CLONE3[at], [step(RETURN, MISSING)])
    requests = [*_TYPING, *_FILE_FLAGS]
    of_ioctl = [each for value in requests for each in _block(value, [step(RETURN, REFUSE)])]
    request = low(1).offset  # its low word: the kernel looks at no other
    code += _block(_IOCTL[at], [step(LOAD, request), *of_ioctl, step(RETURN, ALLOW)])
    code.append(step(RETURN, ALLOW))
    return b"".join(code)


def _block(value: int | None, steps: list[bytes]) -> list[bytes]:
    """These steps for what was loaded if it is this value; each way through them ends."""
    return [] if value is None else [step(JUMP_IF_EQUAL, value, otherwise=len(steps)), *steps]
