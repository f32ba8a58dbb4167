"""The calls of :mod:`model.calls` through the engine's public API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa

from model.calls import DOMAINS, PROTECTION, RULES, Condition, On, Setting
from model.cases import table, values_of
from model.operations import Values
from refdelta import errors
from refdelta.api.drop_feature import drop_feature
from refdelta.api.table_transaction import TableTransaction
from refdelta.api.transaction import WriteTransaction
from refdelta.engine.log.snapshot import Snapshot
from refdelta.engine.scan.scan import Scan, plan_scan
from refdelta.transaction.results import CommitResult

COLUMNS = ["k", "a"]


class EngineCalls:
    """A transaction of the engine.

    Args:
        txn: the transaction. It is not committed.
    """

    def __init__(self, txn: WriteTransaction) -> None:
        self.txn = txn

    # --- rows ---

    def read(self, where: Condition) -> list[Values]:
        return values_of(self.txn.read(COLUMNS, where.sql))

    def append(self, *values: Values) -> None:
        self.txn.append(table(*values))

    def append_own(self, way: str) -> None:
        own = self._own()
        data: dict[str, Any] = {"scan": own, "list": [own], "generator": (one for one in [own])}
        self.txn.append(data[way])

    def delete(self, where: Condition) -> None:
        self.txn.delete(where.sql)

    def update(self, where: Condition, to: Setting) -> None:
        self.txn.update({"a": to.sql}, predicate=where.sql)

    def merge(self, source: Sequence[Values], on: On, *, update: bool = False, insert: bool = True) -> None:
        builder = self.txn.merge(table(*source), on.sql)
        if update:
            builder = builder.when_matched_update({"a": "s.a"})
        if insert:
            builder = builder.when_not_matched_insert({"k": "s.k", "a": "s.a"})
        builder.execute()

    def merge_own(self, on: On, shift: int) -> None:
        builder = self.txn.merge(self._own(), on.sql)
        builder.when_not_matched_insert({"k": f"s.k + {shift}", "a": "s.a"}).execute()

    def _own(self) -> Scan:
        return plan_scan(self.txn._transaction.snapshot, COLUMNS)

    def fails(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except errors.DeltaError:
            return True
        return False

    # --- the rest of the table ---

    def domains(self) -> dict[str, str]:
        return {name: value for name, value in self.txn.domain_metadata().items() if not name.startswith("delta.")}

    def set_domain(self, name: str, value: str | None) -> None:
        self.txn.set_domain_metadata(name, value)

    def cluster_by(self, column: str) -> None:
        self.txn.cluster_by([column])

    def drop_column(self) -> None:
        self.txn.drop_columns(["s"])

    def rename_column(self) -> None:
        self.txn.rename_column("s", "r")

    def retype_column(self) -> None:
        self.txn.change_type("s", pa.int64())

    def require(self, rule: str) -> None:
        if rule == "given":
            self.txn.set_nullable("a", False)
        else:
            self.txn.add_constraint({rule: RULES[rule].sql})

    def add_feature(self) -> None:
        self.txn.add_feature(PROTECTION, True)

    def drop_feature(self) -> None:
        drop_feature(lambda: _Open(self.txn._transaction), DOMAINS, truncate_history=False)

    def enable_times(self) -> None:
        self.txn.set_table_properties({"delta.enableInCommitTimestamps": "true"})

    def compact(self) -> None:
        self.txn.compact()

    def cluster(self) -> None:
        self.txn.cluster(full=True)

    def restore(self) -> None:
        self.txn.restore(0)


class _Open:
    """A transaction that stays open when :func:`~refdelta.api.drop_feature.drop_feature` ends it."""

    def __init__(self, txn: TableTransaction) -> None:
        self.txn = txn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def existing(self) -> Snapshot:
        return self.txn.existing

    def run(self, statement: str, stage: Callable[..., None]) -> None:
        self.txn.run(statement, stage)

    def commit(self) -> CommitResult:
        return CommitResult(version=None)
