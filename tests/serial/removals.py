"""Parts of the engine that can be removed, one at a time, to see that a program notices: rules, reads, resources.

``python -m serial --without NAME`` plays programs without one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pyarrow.compute as pc

from refdelta.api import table_transaction
from refdelta.core.commit import loop, member
from refdelta.core.commit.member import Member
from refdelta.core.conflicts import precedence, rules, state
from refdelta.core.conflicts.precedence import Effects, Precedence
from refdelta.core.conflicts.reads import Read, ReadSet
from refdelta.core.log.footprint import Footprint
from refdelta.operations.merge import execution, join
from refdelta.operations.merge.matches import gathered
from refdelta.operations.merge.plan import MergePlan
from refdelta.operations.write import source
from refdelta.transaction import prepared_commit
from refdelta.transaction.row_matching import RowMatching
from refdelta.transaction.transaction import Transaction
from rules_left_out import check_without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Patches = list[Any]


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """The engine without these, which are names of :data:`REMOVALS`."""
    missing = [name.removeprefix(_RULE) for name in names if name.startswith(_RULE)]
    patches = [mock.patch.object(member, "check", check_without(*missing))] if missing else []
    for name in names:
        if not name.startswith(_RULE):
            patches += REMOVALS[name]()
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


_RULE = "rule "


def _nothing(*_given: Any, **_named: Any) -> None:
    """Does nothing, in the place of a method that records something."""


def _method(owner: Any, name: str, other: Any) -> Callable[[], Patches]:
    return lambda: [mock.patch.object(owner, name, other)]


# --- reads -----------------------------------------------------------------------------------------------------------


def _some_domains(*, named: bool) -> Callable[[], Patches]:
    """Reads of domains by name, or else of all domains, are not recorded."""
    record = Transaction.read_domains

    def read_domains(self: Transaction, names: Any = None) -> None:
        if (names is not None) != named:
            record(self, names)

    return _method(Transaction, "read_domains", read_domains)


def _applications_not_read() -> Patches:
    prepared = prepared_commit.PreparedCommit

    def without_applications(*, read_set: ReadSet, **others: Any) -> Any:
        return prepared(read_set=dataclasses.replace(read_set, app_ids=frozenset()), **others)

    return [mock.patch.object(prepared_commit, "PreparedCommit", without_applications)]


def _own_footprint(**fields: Any) -> Callable[[], Patches]:
    """The transaction's own footprint has these fields; those of winners are what they are."""
    fold = state.fold
    return _method(state, "fold", lambda *given, **how: msgspec.structs.replace(fold(*given, **how), **fields))


def _only_the_finest() -> Patches:
    """Of several reads of rows only those with a finer question are kept, where there are any."""
    whole = ReadSet.with_predicate

    def with_predicate(self: ReadSet, predicate: Any, *, finer: bool = False) -> ReadSet:
        if finer:
            return dataclasses.replace(self, reads=(*(one for one in self.reads if one.finer), Read(predicate, finer)))
        return self if any(one.finer for one in self.reads) else whole(self, predicate)

    def add(self: RowMatching, predicate: Any, matches: Any) -> None:
        finer = [one for one in self.asked if one[1] is not None]
        if matches is not None:
            self.asked = [*finer, (predicate, matches)]
        elif not finer:
            self.asked.append((predicate, matches))

    return [mock.patch.object(ReadSet, "with_predicate", with_predicate), mock.patch.object(RowMatching, "add", add)]


def _failed_forgotten() -> Patches:
    """A statement or a read that raises takes its reads with it."""
    staged = Transaction.all_or_nothing

    @contextlib.contextmanager
    def reading(self: Transaction, predicate: Any, _files: Any, matches: Any = None) -> Iterator[None]:
        with forgetting(self):
            self.read_predicate(predicate, matches)
            yield

    @contextlib.contextmanager
    def all_or_nothing(self: Transaction) -> Iterator[None]:
        with forgetting(self), staged(self):
            yield

    @contextlib.contextmanager
    def forgetting(self: Transaction) -> Iterator[None]:
        reads, rows, asked = self._reads, dict(self._rows_read), list(self.row_matching.asked)
        try:
            yield
        except BaseException:
            self._reads, self._rows_read, self.row_matching.asked = reads, rows, asked
            raise

    return [
        mock.patch.object(Transaction, "reading", reading),
        mock.patch.object(Transaction, "all_or_nothing", all_or_nothing),
    ]


def _sources_unknown(record_reads: Callable[..., None]) -> Callable[[], Patches]:
    """Another way to record that rows come from the table itself."""
    return lambda: [
        mock.patch.object(table_transaction, "record_reads", record_reads),
        mock.patch.object(execution, "record_reads", record_reads),
    ]


def _clauses_not_read(*kept: int) -> Callable[[], Patches]:
    """Of the clauses by source of a MERGE only those at these places count as read."""
    whole = MergePlan.reads

    def reads(plan: Any, keys: Any) -> Any:
        rest = [clause for place, clause in enumerate(plan.of_rest) if place in kept]
        others = [clause for clause in plan.clauses if clause.clause.when != "not matched by source"]
        return whole(dataclasses.replace(plan, clauses=(*others, *rest)), keys)

    return lambda: [mock.patch.object(MergePlan, "reads", reads)]


def _matches_alone() -> Patches:
    """Rows of others count if they match the source, and not if a clause by source would change them."""

    def concerns(self: Any, rows: Any) -> Iterator[Any]:
        before = 0
        for piece in gathered(rows, self.strategy.piece_bytes):
            yield pc.add(self.strategy.matching(piece), before)
            before += piece.num_rows

    return [mock.patch.object(execution.MergeExecution, "_concerns", concerns)]


def _nulls_match_nothing() -> Patches:
    """The nulls of a source are no part of its keys, those of ``<=>`` neither."""
    made = join.KeyValues.of

    def of(on: Any, alias: str, rows: Any) -> Any:
        keys = tuple(dataclasses.replace(key, nulls=False) for key in on.keys)
        return made(dataclasses.replace(on, keys=keys), alias, rows)

    return [mock.patch.object(join.KeyValues, "of", of)]


def _by_uri(txn: Transaction, tables: source.TablesRead) -> None:
    """A table is known by its URI only."""

    def note(read: Any) -> None:
        if read.store.uri == txn.store.uri:
            source.rest_on(txn, read.version)

    tables.each(note)


def _at_once(txn: Transaction, tables: source.TablesRead) -> None:
    """Tables are known that are open when the write begins."""
    source.record_reads(txn, source.TablesRead(list(tables.known)))


# --- resources -------------------------------------------------------------------------------------------------------


def _footprints(change: Callable[[Footprint], dict[str, Any]]) -> Callable[[], Patches]:
    """Winners leave other footprints than they do: with these fields."""
    fold = loop.fold_commit

    def fold_commit(*given: Any) -> Footprint:
        found = fold(*given)
        return msgspec.structs.replace(found, **change(found))

    return lambda: [
        mock.patch.object(loop, "fold_commit", fold_commit),
        # Winners are folded one by one.
        mock.patch.object(loop, "fold_together", _nothing),
    ]


def _files(found: Footprint, adds: Callable[[str, Any], bool], removes: Callable[[Any], bool]) -> dict[str, Any]:
    """The fields of a footprint that has some of the files only."""
    added = {path: add for path, add in found.added.items() if adds(path, add)}
    removed = {path: remove for path, remove in found.removed.items() if removes(remove)}
    return {
        "adds": tuple(added.values()),
        "removes": tuple(removed.values()),
        "paths": (*added, *removed),
    }


def _without_added_rows(found: Footprint) -> dict[str, Any]:
    """New files with data are left out."""
    return _files(found, lambda path, add: not add.data_change or path in found.removed, lambda _: True)


def _without_removed_rows(found: Footprint) -> dict[str, Any]:
    """Files that lose rows are left out."""
    gone = {path for path, remove in found.removed.items() if remove.data_change is not False}
    return _files(found, lambda path, _: path not in gone, lambda remove: remove.data_change is False)


def _without_moved_rows(found: Footprint) -> dict[str, Any]:
    """Compactions are left out."""
    return _files(found, lambda _path, _add: not found.rearranges, lambda _remove: not found.rearranges)


def _without_vacuum(found: Footprint) -> dict[str, Any]:
    return {"operation": "Empty Commit"} if found.deletes_files_before is not None else {}


def _values_are_rows() -> Patches:
    """Where an order is looked for, domains and application ids do not count."""
    return [
        mock.patch.object(precedence, "_shared", return_value=False),
        mock.patch.object(Footprint, "writes_values", Footprint.changes_data),
    ]


def _bound_forgets() -> Patches:
    """Past the bound on files, winners are forgotten, and nothing says so."""
    pass_over = Precedence.pass_over

    def forgetting(self: Precedence, winner: Footprint, *, skipped: bool) -> None:
        pass_over(self, winner, skipped=skipped)
        self.files = 0

    return [mock.patch.object(Precedence, "pass_over", forgetting)]


REMOVALS: dict[str, Callable[[], Patches]] = {
    **{f"{_RULE}{rule.id}": list for rule in rules.RULES},
    "read of rows by a predicate": _method(Transaction, "read_predicate", _nothing),
    "read of the whole table": _method(Transaction, "read_whole_table", _nothing),
    "read of rows by their positions": _method(Transaction, "read_rows", _nothing),
    "read of files": _method(Transaction, "read_files", _nothing),
    "read of a domain": _some_domains(named=True),
    "read of all domains": _some_domains(named=False),
    "read of application ids": _applications_not_read,
    "write of application ids": _own_footprint(app_ids=frozenset()),
    "write of a domain": _own_footprint(domains=frozenset()),
    "rest on files of others": _method(Transaction, "rest_on_files", _nothing),
    "reads beside a finer one": _only_the_finest,
    "reads of a statement that fails": _failed_forgotten,
    "reads by a source that is the table": _sources_unknown(_nothing),
    "reads by a source under another name": _sources_unknown(_by_uri),
    "reads by a source that is opened late": _sources_unknown(_at_once),
    "reads of clauses by source": _clauses_not_read(),
    "reads of the second clause by source": _clauses_not_read(0),
    "rows of others that a clause by source changes": _matches_alone,
    "nulls of null-safe keys": _nulls_match_nothing,
    "reads of what is stored in a domain beside a compaction": _method(
        state.TransactionState, "_writes_what_it_read", lambda _: False
    ),
    "domains that name columns": _method(prepared_commit, "_domains_of_columns", lambda *_: frozenset()),
    "the time before the first timestamp": _method(Member, "brings_timestamps", False),
    "domains and applications in an order": _values_are_rows,
    "the answer past the bound on files": _bound_forgets,
    "transactions that keep their place in an order": _method(Effects, "keeps_its_place", False),
    "resource protocol": _footprints(lambda _: {"changes_protocol": False}),
    "resource metadata": _footprints(lambda _: {"metadata": None}),
    "resource identity values": _method(prepared_commit, "has_identity_columns", lambda _: False),
    "resource domains": _footprints(lambda _: {"domains": frozenset()}),
    "resource applications": _footprints(lambda _: {"app_ids": frozenset()}),
    "resource deleted files": _footprints(_without_vacuum),
    "resource added rows": _footprints(_without_added_rows),
    "resource removed rows": _footprints(_without_removed_rows),
    "resource moved rows": _footprints(_without_moved_rows),
    "resource row ids": _footprints(lambda _: {"row_marks": ()}),
    "resource commit time": _footprints(lambda _: {"in_commit_timestamp": None}),
}
"""What can be removed, by name: functions that make the patches. Rules are removed together, by :func:`without`."""
