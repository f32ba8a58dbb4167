"""One verb a module."""
