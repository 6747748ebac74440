"""Tables in Markdown, as GitHub writes them, and which tables of a page are any."""

from selectolax.lexbor import LexborNode

_MAX_SPAN = 20
_MAX_COLUMNS = 60
# What no cell of such a table can hold; old pages lay themselves out by tables, and these hold it all.
_LAID_OUT = frozenset({
    "blockquote", "dl", "form", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "menu", "ol", "pre", "table", "ul",
})  # fmt: skip


class Table:
    """Rows of cells, which are Markdown already."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._row: list[str] = []

    def add_cell(self, text: str, *, span: str = "") -> None:
        """Adds a cell; one that spans several columns is followed by empty ones."""
        columns = int(span) if span.isdecimal() and len(span) < 3 else 1
        self._row += [text, *[""] * (min(columns, _MAX_SPAN) - 1)][: _MAX_COLUMNS - len(self._row)]

    def end_row(self) -> None:
        if any(self._row):
            self._rows.append(self._row)
        self._row = []

    def lines(self) -> list[str]:
        """The first row is the head: such a table has one."""
        self.end_row()
        width = max(map(len, self._rows), default=0)
        lines = [_line([*row, *[""] * (width - len(row))]) for row in self._rows]
        return [*lines[:1], _line(["---"] * width), *lines[1:]] if lines else []


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def is_of_data(table: LexborNode, *, most: int) -> tuple[bool, int]:
    """Whether the table has nothing but words in its cells, and how many nodes that took, `most` at most."""
    stack: list[LexborNode] = []
    node = table.first_child
    looked_at = 0
    while node is not None:
        looked_at += 1
        if looked_at >= most or (node.tag or "") in _LAID_OUT:
            return False, looked_at
        if node.next is not None:
            stack.append(node.next)
        node = node.first_child or (stack.pop() if stack else None)
    return True, looked_at
