"""The reader of pages that is written in C: its sources, how they are compiled, and how Python calls it."""
