"""The blocks of a Markdown document: paragraphs one after the other, in lists and quotations."""

from collections.abc import Sequence

MAX_DEPTH = 12  # of lists and quotations in each other: what nests deeper is not set in any further


class _Container:
    """A list's item or a quotation, and what its lines begin with."""

    def __init__(self, marker: str, indent: str) -> None:
        self.marker = marker
        self.indent = indent
        self.is_begun = False  # set by the first block in it

    @property
    def is_item(self) -> bool:
        return self.marker != self.indent


class Blocks:
    """Takes blocks and what holds them, in document order."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._containers: list[_Container] = []
        self._ended_in_item = False  # the last block stood in a list

    def begin_item(self, marker: str) -> None:
        """What follows stands in an item of a list, until it is ended."""
        self._begin(marker, " " * len(marker))

    def begin_quotation(self) -> None:
        self._begin("> ", "> ")

    def end(self) -> None:
        """Ends the item or quotation that began last."""
        self._containers.pop()

    def add(self, lines: Sequence[str]) -> None:
        """Adds a block, which stands apart from the one before it unless both are items of a list."""
        begins_item = bool(self._containers) and any(
            each.is_item and not each.is_begun for each in self._containers
        )
        if self._lines and not (begins_item and self._ended_in_item):
            self._lines.append(self._prefix(only_begun=True).rstrip())
        for line in lines:
            self._lines.append((self._prefix() + line).rstrip(" "))
            for container in self._containers:
                container.is_begun = True
        self._ended_in_item = any(each.is_item for each in self._containers)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _begin(self, marker: str, indent: str) -> None:
        is_too_deep = len(self._containers) >= MAX_DEPTH
        self._containers.append(_Container("", "") if is_too_deep else _Container(marker, indent))

    def _prefix(self, *, only_begun: bool = False) -> str:
        parts = []
        for container in self._containers:
            if only_begun and not container.is_begun:
                break
            parts.append(container.indent if container.is_begun else container.marker)
        return "".join(parts)
