"""Search: a full-text index of the collection's pages, and what a search finds."""
