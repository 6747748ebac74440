"""The embedded ledger: one SQLite file in WAL mode."""
