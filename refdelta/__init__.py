"""The Delta Lake commit protocol in pure Python: no JVM, no delta-rs.

``DeltaTable`` reads a table, ``write_deltalake`` writes one, ``errors`` holds everything that both raise.
"""

from refdelta import errors
from refdelta._version import __version__
from refdelta.concurrency.lookout import RowBudget
from refdelta.protocol.actions import Txn as Transaction
from refdelta.results import CommitProperties, CommitResult
from refdelta.schema import Schema
from refdelta.table import DeltaTable
from refdelta.writer import write_deltalake

__all__ = [
    "CommitProperties",
    "CommitResult",
    "DeltaTable",
    "RowBudget",
    "Schema",
    "Transaction",
    "__version__",
    "errors",
    "write_deltalake",
]
