"""The Delta Lake commit protocol in pure Python: no JVM, no delta-rs.

``DeltaTable`` reads a table, ``write_deltalake`` writes one, ``errors`` holds everything that both raise. Each name is
imported when it is first asked for. Arrow and the engine are imported by the first method that is called:
``from refdelta import DeltaTable`` takes some milliseconds.
"""

from refdelta._version import __version__

TYPE_CHECKING = False  # the import of typing would take longer than all of this module, and Ctrl-C may come meanwhile
if TYPE_CHECKING:
    from typing import Any

    from refdelta import errors
    from refdelta.api.convert import convert_to_deltalake
    from refdelta.api.explain import explain_conflict
    from refdelta.api.following import Change
    from refdelta.api.table import DeltaTable
    from refdelta.api.telemetry import instrument
    from refdelta.api.writer import write_deltalake, write_deltalake_async
    from refdelta.arrow.variant import variants
    from refdelta.core.commit.budget import RowBudget
    from refdelta.core.log.actions import Txn as AppTransaction
    from refdelta.operations.write.column_declarations import Identity
    from refdelta.operations.write.prepared_files import AddAction, RemoveAction
    from refdelta.schema import Schema
    from refdelta.sql_statements.run import sql
    from refdelta.transaction.background import settle_all as settle
    from refdelta.transaction.events import CommitEvent, observe_commits
    from refdelta.transaction.options import CommitOptions, CommitProperties, StatementOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.verifier.run import verify

__all__ = [
    "AddAction",
    "AppTransaction",
    "Change",
    "CommitEvent",
    "CommitOptions",
    "CommitProperties",
    "CommitResult",
    "DeltaTable",
    "Identity",
    "RemoveAction",
    "RowBudget",
    "Schema",
    "StatementOptions",
    "__version__",
    "convert_to_deltalake",
    "errors",
    "explain_conflict",
    "instrument",
    "observe_commits",
    "settle",
    "sql",
    "variants",
    "verify",
    "write_deltalake",
    "write_deltalake_async",
]

# Where each name is, and what it is called there.
_HOMES = {
    "AddAction": ("operations.write.prepared_files", "AddAction"),
    "AppTransaction": ("core.log.actions", "Txn"),
    "Change": ("api.following", "Change"),
    "CommitEvent": ("transaction.events", "CommitEvent"),
    "CommitOptions": ("transaction.options", "CommitOptions"),
    "StatementOptions": ("transaction.options", "StatementOptions"),
    "CommitProperties": ("transaction.options", "CommitProperties"),
    "CommitResult": ("transaction.results", "CommitResult"),
    "DeltaTable": ("api.table", "DeltaTable"),
    "Identity": ("operations.write.column_declarations", "Identity"),
    "RemoveAction": ("operations.write.prepared_files", "RemoveAction"),
    "RowBudget": ("core.commit.budget", "RowBudget"),
    "Schema": ("schema", "Schema"),
    "convert_to_deltalake": ("api.convert", "convert_to_deltalake"),
    "explain_conflict": ("api.explain", "explain_conflict"),
    "instrument": ("api.telemetry", "instrument"),
    "observe_commits": ("transaction.events", "observe_commits"),
    "settle": ("transaction.background", "settle_all"),
    "sql": ("sql_statements.run", "sql"),
    "variants": ("arrow.variant", "variants"),
    "verify": ("verifier.run", "verify"),
    "write_deltalake": ("api.writer", "write_deltalake"),
    "write_deltalake_async": ("api.writer", "write_deltalake_async"),
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "errors":
        return import_module("refdelta.errors")
    if name == "Transaction":
        from warnings import warn

        warn(
            "refdelta.Transaction is deprecated, and goes in 0.4: use refdelta.AppTransaction",
            DeprecationWarning,
            stacklevel=2,
        )
        return __getattr__("AppTransaction")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _HOMES[name]
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), original)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
