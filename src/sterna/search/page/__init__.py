"""The search page: HTML without scripts, and a JSON API beside it."""
