"""The parts of a site: what lies below the first directory of a path, and what lies in none."""

from sterna.web.urls import path_of

TOP = "/"  # the part of pages that lie in no directory


def part_of(url: str) -> str:
    """The part in which a canonical URL lies, such as "/docs/"."""
    path = path_of(url).partition("?")[0]
    end = path.find("/", 1)
    return path[: end + 1] if end > 0 else TOP
