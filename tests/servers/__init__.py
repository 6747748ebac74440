"""Servers that the tests and the benches crawl: real, hostile and synthetic."""
