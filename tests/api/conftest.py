"""The tables that these tests leave are verified."""

from verifier.every_table import pytest_runtest_call  # noqa: F401 - a hook
