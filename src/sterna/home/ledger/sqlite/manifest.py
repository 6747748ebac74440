"""Which files of the archive count: segments, and WARC files up to a length."""

from collections.abc import Sequence

from sterna.archive.manifest import Segment, WarcPosition
from sterna.home.ledger.sqlite.database import Part
from sterna.home.ledger.sqlite.pages import write_warc


class Manifest(Part):
    """The names of the files that count."""

    def segments(self) -> list[Segment]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT name, tbl, rows, size_bytes, tier FROM segment WHERE retired_at IS NULL ORDER BY name"
            )
            return [Segment(*row) for row in rows]

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None:
        with self._database.transaction() as db:
            db.executemany(
                "UPDATE segment SET retired_at = ? WHERE name = ?", [(now, segment.name) for segment in old]
            )
            db.execute(
                "INSERT INTO segment VALUES (?, ?, ?, ?, ?, NULL)",
                (new.name, new.table, new.rows, new.size_bytes, new.tier),
            )

    def forget_retired(self, *, before: float) -> list[str]:
        with self._database.transaction() as db:
            rows = db.execute("DELETE FROM segment WHERE retired_at < ? RETURNING name", (before,))
            return [name for (name,) in rows.fetchall()]

    def warc_positions(self) -> list[WarcPosition]:
        with self._database.reading() as db:
            rows = db.execute("SELECT name, committed_bytes, is_open FROM warc ORDER BY name")
            return [WarcPosition(name, size, bool(is_open)) for name, size, is_open in rows]

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None:
        with self._database.transaction() as db:
            write_warc(db, positions)
