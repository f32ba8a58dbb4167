"""The version of this engine, as commitInfo names it."""

__version__ = "0.1.0"
