"""The group ``refdelta`` with all its commands, which register themselves when their modules are imported."""

from refdelta.cli import (  # noqa: F401
    benching,
    catalogs,
    changing,
    conforming,
    crosschecking,
    defining,
    inspect,
    maintaining,
    reading,
    running,
    seeing,
    sql,
    verifying,
    writing,
)
from refdelta.cli.group import app

__all__ = ["app"]
