"""Numbers for people."""


def bytes_text(count: float) -> str:
    """12.3 MB and the like."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration_text(seconds: float) -> str:
    """12.3 s, 4 min 5 s, 2 h 3 min and the like."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def plural(count: int, noun: str) -> str:
    """1 site, 2 sites and the like."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
