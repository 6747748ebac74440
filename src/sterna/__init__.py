"""Sterna: crawlers that migrate."""

__version__ = "0.1.0"
