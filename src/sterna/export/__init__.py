"""A collection in the forms that other tools read."""
