"""A transaction rebuilt from its commit, as if it had begun at an earlier version.

Its reads are the recorded predicates, evaluated at that version over the files that the winner touches: these are the
only files of which a rule asks. Without recorded predicates, those of ``operationParameters`` count if they can be
parsed; otherwise every row counts as read, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from refdelta.arrow.arrays import exact_sum
from refdelta.core.commit.budget import RowBudget
from refdelta.core.conflicts.reads import EVERY_ROW, PREDICATE_TEXT
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from refdelta.core.log.assigned import DOMAIN as ROW_TRACKING
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key, same_path
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output, recorded_relocations
from refdelta.core.rows.sets import MOST_ROWS
from refdelta.engine.log.statistics import whole_adds
from refdelta.engine.parquet.dv import load_deletion_vectors
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import DataFileError, DeltaError
from refdelta.expressions.expression import Predicate
from refdelta.expressions.predicate import TRUE
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.rewrite import find_matches
from refdelta.transaction.parties import stated_predicate
from refdelta.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from refdelta.core.log.footprint import Footprint
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.rehearsal import RecordedCommit
    from refdelta_storage import Store


@dataclass
class RecordedTransaction:
    """A transaction that was rebuilt from its commit.

    Attributes:
        txn: the transaction. It is never committed.
        info: the fields of its commitInfo.
        subject: its name in notes.
        notes: sentences on what the commit does not record, and what was assumed instead.
    """

    txn: Transaction
    info: Mapping[str, Any]
    subject: str
    notes: list[str] = field(default_factory=list)


def rebuild(
    store: Store, before: Snapshot | None, winner: Footprint, commit: RecordedCommit, budget: RowBudget
) -> RecordedTransaction:
    """Rebuild the transaction of a commit as if it had read the version before a winner.

    Args:
        store: the table's store.
        before: that version; None if the winner created the table.
        winner: the winner.
        commit: the commit to rebuild, of a later version or of none.
        budget: limits the bytes of data files that are read.

    Raises:
        InvalidLogError: the commit is damaged.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
    """
    actions = decode_commit(commit.data, commit_key(commit.version))
    info = next((action.fields for action in actions if isinstance(action, CommitInfo)), {})
    own, added = commit.footprint, {same_path(action.path): action for action in actions if isinstance(action, Add)}
    found = RecordedTransaction(Transaction(store, before), info, commit.subject)
    txn = found.txn
    txn.describe(own.operation or "WRITE", {}, {}, always=True)
    kinds: tuple[type[Metadata | Protocol | Txn], ...] = (Metadata, Protocol, Txn)
    for action in actions:
        if isinstance(action, kinds):
            txn.stage([action])
    domains = [action for action in actions if isinstance(action, DomainMetadata)]
    txn.stage(action for action in domains if action.domain != ROW_TRACKING)
    if before is None:
        there = {type(action) for action in txn.staged}
        first: list[AnyAction] = [Protocol(min_reader_version=1, min_writer_version=2)]
        first += [winner.metadata] if winner.metadata else []
        txn.stage(action for action in first if type(action) not in there)
    elif own.rearranges and own.removes:
        txn.replace_files(list(_groups(before, winner, own, added)))
    else:
        _read(found, before, winner, own, budget)
        # A file that is removed and added again only loses rows: these are staged as rows.
        txn.stage(add for path, add in added.items() if path not in own.removed and path not in winner.added)
    if own.operation == "RESTORE":
        txn.rest_on_files(0)
    return found


# --- reads and removed rows ------------------------------------------------------------------------------------------


def _read(found: RecordedTransaction, before: Snapshot, winner: Footprint, own: Footprint, budget: RowBudget) -> None:
    """Record the reads of a transaction, and the rows that it removes of the files that the winner touches."""
    txn = found.txn
    predicates = _predicates(found, before, own)
    if own.read_domains is not None:
        txn.read_domains(own.read_domains)
    elif own.read_predicates is not None:
        txn.read_domains(None)
    touched = files_at(before, winner.removed.keys() | winner.added.keys())
    if predicates is None or TRUE in predicates:
        txn.read_whole_table()
        if own.removed_data:
            known = {same_path(remove.path) for remove in own.removed_data}
            txn.delete_files(
                add for add in whole_adds(touched) if predicates is not None or same_path(add.path) in known
            )
        return
    for predicate in predicates:
        some = before.with_files(touched)
        scan = plan_scan(some, [], predicate)
        size = exact_sum(scan.files.column("size"))
        if size > budget.size:
            found.notes.append(
                f"{size:,} bytes of files would have to be read to find the rows, more than the budget of "
                f"{budget.size:,}: all rows of these files count as read"
            )
            txn.read_predicate(predicate)
            _remove(txn, own, whole_adds(scan.files))
            continue
        try:
            matches = find_matches(txn, some, predicate)
        except DataFileError as error:
            found.notes.append(f"all rows of a file that cannot be read count as read: {error}")
            continue
        for match in matches:
            if match.rows is None or not txn.vectors:
                _remove(txn, own, [match.add])
            elif own.removed_data:
                txn.delete_rows(match.add, match.rows, match.deleted)


def _remove(txn: Transaction, own: Footprint, adds: Sequence[Add]) -> None:
    """Record reads of whole files, and their removal if the transaction removes rows."""
    if own.removed_data:
        txn.delete_files(adds)
    else:
        txn.read_files(adds)


def _predicates(found: RecordedTransaction, before: Snapshot, own: Footprint) -> list[Predicate] | None:
    """The predicates that the transaction read; None for every row."""
    if own.blind or not (own.adds or own.removes):
        return []
    named = found.subject
    texts, stated = own.read_predicates, stated_predicate(found.info)
    if texts is None and stated is not None and own.operation in {"DELETE", "UPDATE", "WRITE"}:
        texts = (stated,)
        if '"' in stated and str(found.info.get("engineInfo", "")).startswith("delta-rs"):
            texts = None  # there it is the name of a column, in Spark a string
    if texts is None:
        found.notes.append(f"{named} does not record what it read: every row of the table counts as read")
        return None
    parameters = found.info.get("operationParameters")
    stated_none = not isinstance(parameters, dict) or "predicate" not in parameters
    if stated_none and EVERY_ROW.text in texts and own.operation in {"DELETE", "UPDATE", "MERGE"}:
        found.notes.append(
            f"{named} does not record its predicate (refdelta.recordPredicates=false): every row of the "
            "table counts as read"
        )
    elif own.operation == "MERGE":
        found.notes.append(
            f"{named} is a MERGE, which records a wider predicate than its keys: the rows that it read may be fewer"
        )
    if sum(map(len, texts)) > PREDICATE_TEXT:
        return None
    try:
        return [parse_predicate(text, before.schema, recorded=True) for text in dict.fromkeys(texts)]
    except DeltaError as error:
        found.notes.append(f"the predicate of {named} cannot be used, so every row counts as read: {error}")
        return None


def files_at(snapshot: Snapshot, paths: Collection[str]) -> pa.Table:
    """The live files with these normalized paths."""
    files = snapshot.files
    mask = pa.array([same_path(path) in paths for path in files.column("path").to_pylist()], pa.bool_())
    return files.filter(mask)


# --- rearranged files ------------------------------------------------------------------------------------------------


def _groups(before: Snapshot, winner: Footprint, own: Footprint, added: Mapping[str, Add]) -> Iterator[Group]:
    """The groups that a compaction rearranges, without the inputs that did not exist before the winner.

    Files that the winner replaced are inputs, too, if the compaction rearranges what the winner wrote in their place.
    """
    replaced = winner.removed.keys() - winner.added.keys() if winner.changes_data else set[str]()
    there = {same_path(add.path): add for add in whole_adds(files_at(before, {*own.removed, *replaced}))}
    outputs = {path: set(found.outputs) for path, found in recorded_relocations(own).items() if found.outputs}
    inputs = {path: add for path, add in there.items() if path in own.removed}
    old = _by_partition(there[path] for path in replaced & there.keys())
    for path in own.removed.keys() & winner.added.keys() - inputs.keys():
        for add in old.get(_partition(winner.added[path]), ()):
            inputs[same_path(add.path)] = add
            if path in outputs:
                outputs.setdefault(same_path(add.path), set()).update(outputs[path])
    touched = [add for path, add in inputs.items() if path in winner.removed and add.deletion_vector is not None]
    vectors = load_deletion_vectors(before.store, [add.deletion_vector for add in touched])
    hidden = {same_path(add.path): rows for add, rows in zip(touched, vectors, strict=True)}

    def placed(adds: Iterable[Add]) -> tuple[Input, ...]:
        return tuple(Input(add, hidden.get(same_path(add.path), BitMap64())) for add in adds)

    for paths, output in _components(outputs):
        some = placed(inputs[path] for path in sorted(paths) if path in inputs)
        copied = tuple(CopiedRows(one.add.path, one.add.deletion_vector, 0, _live(one.add)) for one in some)
        # Statistics may lack the number of rows, or be wrong.
        known = all(one.rows > 0 for one in copied) and sum(one.rows for one in copied) <= MOST_ROWS
        if some:
            yield Group(some, (Output(added[output], copied if known else ()),), permuted=not known)
    news = _by_partition(added.values())
    for values, adds in _by_partition(add for path, add in inputs.items() if path not in outputs).items():
        yield Group(placed(adds), tuple(map(Output, news.get(values, ()))), permuted=True)


def _live(add: Add) -> int:
    records = num_records(add) or 0
    return records - (add.deletion_vector.cardinality if add.deletion_vector else 0)


def _partition(add: Add) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((add.partition_values or {}).items()))


def _by_partition(adds: Iterable[Add]) -> dict[tuple[tuple[str, str | None], ...], list[Add]]:
    found: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
    for add in adds:
        found.setdefault(_partition(add), []).append(add)
    return found


def _components(outputs: Mapping[str, set[str]]) -> Iterator[tuple[list[str], str]]:
    """Inputs that share outputs, directly or by others, and one of these outputs."""
    parent = {output: output for own in outputs.values() for output in own}

    def root(output: str) -> str:
        while parent[output] != output:
            parent[output] = output = parent[parent[output]]
        return output

    for own in outputs.values():
        first, *others = sorted(own)
        for other in others:
            parent[root(other)] = root(first)
    found: dict[str, list[str]] = {}
    for path, own in outputs.items():
        found.setdefault(root(min(own)), []).append(path)
    for output, paths in found.items():
        yield paths, output
