"""A collection in the formats of other tools."""
