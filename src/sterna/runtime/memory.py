"""What a process takes of the machine's memory."""

from pathlib import Path


def peak_memory_bytes(process: int | str = "self") -> int:
    """The most that a process ever had resident since its program began; 0 if it is gone.

    Not getrusage's maximum: that is handed down from the parent when a program is started.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if "VmHWM" in line), 0)
