"""The transactions of a case of actions: on refdelta's commit core, and on delta-spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from refdelta._version import __version__
from refdelta.arrow.schema import to_arrow
from refdelta.conformance.cases import Case, CaseTransaction, Failure
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.isolation import level_of
from refdelta.core.conflicts.reads import ReadSet, ReadTable, RowPredicate
from refdelta.core.conflicts.state import AddedRows, RowChanges
from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.codec import decode_action
from refdelta.core.log.vacuums import VACUUM_START
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output
from refdelta.core.rows.sets import ALL
from refdelta.crosscheck import oracle
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.dv import load_deletion_vector
from refdelta.engine.scan.filters import row_filter
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import ConcurrentModificationError, InvalidArgumentError
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import has_identity_columns
from refdelta.transaction.driver import RowChecks, commit
from refdelta_storage import Store

_LONG_AGO_MS = 1
"""When the files that a case restores were removed, in milliseconds since 1970."""


class CoreTransaction:
    """A transaction on refdelta's commit core.

    Args:
        case: the case.
        store: the store of the table, which need not have a log yet.
        transaction: the transaction of the case.

    On a table with deletion vectors its removes are row deletes: of the rows that the new vector of the same path
    deletes and the old one does not, or of all rows of a file that is not added again. Files that are only rewritten
    are a group with the relocation of all rows, unless the case says that it is not recorded.
    """

    def __init__(self, case: Case, store: Store, transaction: CaseTransaction) -> None:
        self.case, self.store, self.transaction = case, store, transaction
        self.snapshot = load_snapshot(store) if has_log(store) else None
        self.live = {add.path: add for add in to_adds(self.snapshot.files)} if self.snapshot else {}
        self.vectors = self.snapshot is not None and self.snapshot.properties.enable_deletion_vectors
        self.row_level = self.vectors and not case.partition_columns
        self.reads = ReadSet(version=self.snapshot.version if self.snapshot else -1)
        self.app_ids: frozenset[str] = frozenset()
        for words in transaction.reads:
            self._read(words)
        if any(words.startswith("restore ") for words in transaction.does):
            self.reads = self.reads.resting_on(_LONG_AGO_MS)
        self.read: frozenset[str] | None = frozenset(self.reads.files)

    @property
    def table(self) -> Snapshot:
        """The snapshot that it reads. Raises ``InvalidArgumentError`` if there is no table yet."""
        if self.snapshot is None:
            raise InvalidArgumentError(
                f"{self.case.name}: {self.transaction.name} reads a table that does not exist yet"
            )
        return self.snapshot

    # --- reading ---

    def _read(self, words: str) -> None:
        if words.startswith("app "):
            self.app_ids |= {words[4:]}
        elif words == "everything":
            self.reads = self.reads.with_everything().with_files(self.live.values())
        else:
            self.reads = self.reads.with_predicate(self._parse(words))
            files = self._chosen(words)
            if self.row_level:
                found = ((add, self._matching(add, words)) for add in files)
                self.reads = self.reads.with_rows((add, rows) for add, rows in found if rows)
            else:
                self.reads = self.reads.with_files(files)

    def _chosen(self, words: str) -> list[Add]:
        """The files that may have a row for which a predicate is true."""
        return to_adds(plan_scan(self.table, None, words).files)

    def _hidden(self, add: Add) -> BitMap64:
        return load_deletion_vector(self.store, add.deletion_vector) if add.deletion_vector else BitMap64()

    def _matching(self, add: Add, words: str) -> BitMap64:
        """The live rows of a file for which a predicate is true."""
        rows = pa.Table.from_pylist(self.case.rows(add.path), to_arrow(self.table.schema))
        rows = rows.append_column("row", pa.array(range(rows.num_rows)))
        flt = row_filter(words, self.table.schema)
        if flt is None:
            return BitMap64(range(rows.num_rows)) - self._hidden(add)
        return BitMap64(flt.apply(rows.to_batches()[0])["row"].to_pylist()) - self._hidden(add)

    def _match_rows(self, rows: Sequence[AddedRows]) -> Iterator[bool]:
        data = [words for words in self.transaction.reads if not words.startswith("app ")]
        for one in rows:
            found = (self._matching(one.add, words) for words in data if words != "everything")
            yield "everything" in data or any(one.rows is None or one.rows & some for some in found if some)

    # --- writing ---

    def commit(self, actions: list[dict[str, Any]]) -> Failure | None:
        """Commit it. Returns the failure, or None."""
        decoded = [action for given in actions if (action := decode_action(given, "staged")) is not None]
        removes = {action.path: action for action in decoded if isinstance(action, Remove)}
        adds = {action.path: action for action in decoded if isinstance(action, Add)}
        words = {word for does in self.transaction.does for word in does.split()}
        if removes and adds and words & {"moved", "sorted"} and "unrecorded" not in words:
            groups, edits = [self._group(removes, adds, permuted="sorted" in words)], []
        else:
            groups, edits = [], self._edits(removes, adds) if self.vectors and "unrecorded" not in words else []
        replaced = {each.add.path for each in edits} | {path for group in groups for path in [*removes, *adds]}
        files: list[Add | Remove] = [*removes.values(), *adds.values()]
        moves = all(action.data_change is False for action in files)
        operation = (
            "Manual Update" if not moves or not (removes or adds) else "OPTIMIZE" if removes else "COMPUTE STATS"
        )
        info: dict[str, Any] = {"operation": operation, "isolationLevel": "", "engineInfo": f"refdelta/{__version__}"}
        if "replace" in words:
            info["operation"] = "REPLACE TABLE AS SELECT"
        if "vacuum" in words:
            info |= {"operation": VACUUM_START, "operationParameters": {"specifiedRetentionMillis": "0"}}
        info |= {"isBlindAppend": self.reads.blind and not removes}
        info |= {"readVersion": self.reads.version} if self.snapshot else {}
        level = self.snapshot.properties.isolation_level if self.snapshot else None
        prepared = PreparedCommit(
            read_version=self.reads.version,
            read_set=ReadSet(
                version=self.reads.version,
                reads=self.reads.reads,
                files=self.reads.files,
                app_ids=self.app_ids,
                unowned_since=self.reads.unowned_since,
            ),
            actions=[action for action in decoded if getattr(action, "path", None) not in replaced],
            commit_info=info,
            txn_id=f"{id(self)}",
            level=level_of(level),
            table=self._read_table() if self.snapshot else None,
            changes=RowChanges(deletes=edits, groups=groups, vectors=self.vectors, row_level=self.row_level),
        )
        try:
            self._commit(prepared)
        except ConcurrentModificationError as error:
            return Failure(short(type(error).__name__), " ".join(str(error).split()), error.conflict.rule)
        return None

    def _commit(self, prepared: PreparedCommit) -> None:
        commit(self.store, prepared, checks=RowChecks(self._match_rows))

    def _edits(self, removes: dict[str, Remove], adds: dict[str, Add]) -> list[RowDelete]:
        edits = []
        for path in removes:
            base = self._hidden(self.live[path])
            hidden = self._hidden(adds[path]) if path in adds else None
            if hidden is None:
                edits.append(RowDelete(self.live[path], BitMap64(), ALL))
            elif hidden > base:
                edits.append(RowDelete(self.live[path], base, hidden - base))
        return edits

    def _group(self, removes: dict[str, Remove], adds: dict[str, Add], *, permuted: bool) -> Group:
        """The group of files in which the live rows of the inputs, in order, fill the outputs."""
        inputs = tuple(Input(self.live[path], self._hidden(self.live[path])) for path in removes)
        left = [(each, 0, len(self.case.rows(each.add.path)) - len(each.base)) for each in inputs]
        outputs = []
        for add in adds.values():
            room, places = len(self.case.rows(add.path)), []
            while room:
                if not left:
                    raise InvalidArgumentError(f"{self.case.name}: {add.path} has more rows than its inputs")
                each, start, rows = left[0]
                taken = min(room, rows)
                places.append(CopiedRows(each.add.path, each.add.deletion_vector, start, taken))
                room -= taken
                left[:1] = [(each, start + taken, rows - taken)] if taken < rows else []
            outputs.append(Output(add, () if permuted else tuple(places)))
        if left:
            raise InvalidArgumentError(f"{self.case.name}: {len(left)} inputs have rows that are in no output")
        return Group(inputs, tuple(outputs), permuted)

    def _read_table(self) -> ReadTable:
        identity = has_identity_columns(self.table.schema)
        return ReadTable(metadata=self.table.metadata, parse=self._parse, one_writer=identity)

    def _parse(self, words: str) -> RowPredicate:
        schema = self.table.schema
        return row_predicate(parse_predicate(words, schema), schema, self.table.partition_columns)


def short(name: str) -> str:
    """The name of an exception as cases write it."""
    return name.removesuffix("Exception")


# --- on delta-spark -----------------------------------------------------------------------------------------------


class SparkTransaction:
    """A transaction of delta-spark.

    Args:
        spark: the session.
        path: the table.
        transaction: the transaction of the case.
        first: whether it is the first to commit. It meets no winner then, so only that it reads matters.
    """

    def __init__(self, spark: Any, path: Path, transaction: CaseTransaction, *, first: bool) -> None:
        self.spark, self.delta = spark, spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001
        self.path = path
        log = self.delta.DeltaLog.forTable(spark._jsparkSession, str(path))  # noqa: SLF001
        self.transaction = log.startTransaction()
        data = [words for words in transaction.reads if not words.startswith("app ")]
        for words in transaction.reads:
            if words not in data:
                self.transaction.txnVersion(words[4:])
        self.read: frozenset[str] | None = None
        if data and (first or "everything" in data):
            self.transaction.readWholeTable()
        elif data:
            self.read = frozenset(path for words in data for path in self._filter(words))

    def _filter(self, words: str) -> list[str]:
        # As in an optimized plan: resolved columns, literals of the columns' types, and conjunctions in parts.
        frame = self.spark.read.format("delta").load(str(self.path)).where(re.sub(r"\b(\d+)(?!')\b", r"\1L", words))
        condition = frame._jdf.queryExecution().analyzed().condition()  # noqa: SLF001
        found = self.transaction.filterFiles(oracle.scala_list(self.spark, _conjuncts(condition)), False)
        return [found.apply(index).path() for index in range(found.size())]

    def commit(self, actions: list[dict[str, Any]]) -> Failure | None:
        """Commit it. Returns the failure, or None."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        decode = getattr(self.delta.actions, "Action$").__getattr__("MODULE$").fromJson
        operation = getattr(self.delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        staged = oracle.scala_list(self.spark, [decode(json.dumps(action)) for action in actions])
        try:
            self.transaction.commit(staged, operation)
        except PySparkException as error:
            return Failure(short(type(error).__name__), _first_line(str(error)))
        except Py4JJavaError as error:
            thrown = error.java_exception
            return Failure(short(thrown.getClass().getSimpleName()), _first_line(thrown.getMessage() or ""))
        return None


def _conjuncts(condition: Any) -> list[Any]:
    """The conjuncts of a condition."""
    if condition.getClass().getSimpleName() != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")
