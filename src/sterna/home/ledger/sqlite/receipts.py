"""What hosts and this home signed of visits: kept as it was signed."""

import sqlite3


def write_receipt(db: sqlite3.Connection, visit: str, site: str, data: bytes) -> None:
    """Keeps the receipt of a visit; another one of the same visit takes its place."""
    db.execute("INSERT OR REPLACE INTO receipt VALUES (?, ?, ?)", (visit, site, data))


def read_receipts(db: sqlite3.Connection) -> list[tuple[str, str, bytes]]:
    rows = db.execute(
        "SELECT receipt.visit, receipt.site, data FROM receipt LEFT JOIN visit ON visit.id = receipt.visit"
        " ORDER BY began, receipt.visit"
    )
    return [(visit, site, bytes(data)) for visit, site, data in rows]
