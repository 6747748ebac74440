"""The version; a module of its own, so that nothing below the public names imports them."""

__version__ = "0.4.0"
