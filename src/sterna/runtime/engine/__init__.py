"""The engine: CLIPS with what a crawler may use of it, and both ends of the line to it."""
