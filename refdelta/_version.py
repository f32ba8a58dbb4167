"""The version of this engine, as commitInfo names it."""

__version__ = "0.2.0"
