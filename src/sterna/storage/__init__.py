"""Storage: connections, commands and rules that carry facts into the user's own databases."""
