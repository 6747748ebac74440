"""SQL over a collection."""
