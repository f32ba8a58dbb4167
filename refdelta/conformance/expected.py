"""The outcomes of a case that are right, by the judge: which transactions may commit together, and what is then left.

The steps of a case are replayed on rows: every transaction sees the version that it began at. A file of a case of
actions is a list of rows; files that a compaction writes have the rows of the files that it removes, in their order.
The corpus has the results (``expected``), so that no engine needs this module; a test compares them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations, permutations
from typing import Any, Final, cast

from refdelta.conformance.cases import Case, CaseTransaction, hidden_rows
from refdelta.conformance.judge import (
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Effect,
    Explanation,
    History,
    Operation,
    Row,
    State,
    Transaction,
    apply,
    explain,
    serial_orders,
    serially,
)
from refdelta.conformance.statements import operation
from refdelta.errors import InvalidArgumentError

MUST_COMMIT: Final = "must commit"
MUST_CONFLICT: Final = "must conflict"
EITHER: Final = "either"
_TABLE, _PROTOCOL, _APPLICATION, _DOMAIN, _DATA = "table", "protocol", "application", "domain", "row"
_REMOVED = "removed"
_MOVED = ("moved", "sorted", "unrecorded")

Rows = list[list[int | None]] | dict[str, str]
"""The rows of a table: of a case of statements the values, in order; of a case of actions the ordinals by file."""


@dataclass(frozen=True)
class Outcome:
    """One outcome that is right.

    Attributes:
        committed: the transactions that commit, in the order of their commits; the others conflict.
        orders: all serial orders that explain it.
        rows: the rows that are left.
    """

    committed: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    rows: Rows


def level_of(case: Case) -> str:
    """The level of a case for the judge. A table without the property is held to the weaker one."""
    return SERIALIZABLE if case.level == SERIALIZABLE else WRITE_SERIALIZABLE


@dataclass
class Expectation:
    """The outcomes of a case that are right, and the verdicts."""

    case: Case
    content: dict[str, list[Row]] = field(default_factory=dict)
    """Of a case of actions, the rows of each file, in their order."""

    def history(self, committed: Iterable[str]) -> History:
        """The history in which these transactions commit, each with the effect that it has on the version it saw."""
        wanted = set(committed)
        versions = [self.start]
        began: dict[str, int] = {}
        took_place = []
        for verb, name in self.case.steps:
            if verb == "begin":
                began[name] = len(versions) - 1
            elif name in wanted:
                seen = versions[began[name]]
                run = self._operation(self.case.transactions[name], seen)
                effect = run(name, seen)
                # Statements that change no row read only, and stand at the version that they saw.
                reads_only = self.case.kind == "statements" and not effect.writes
                took_place.append(Transaction(name, run, began[name], None if reads_only else len(versions)))
                if not reads_only:
                    versions.append(apply(versions[-1], effect))
        return History(self.start, tuple(took_place))

    def explain(self, committed: Iterable[str]) -> Explanation:
        """The judge's answer about writers that keep to the version that they began at."""
        return explain(self.history(committed), level_of(self.case))

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes that are right, those with the most commits first."""
        names = self.case.commits
        chosen = (some for count in range(len(names), -1, -1) for some in combinations(names, count))
        return tuple(outcome for some in chosen for outcome in self._outcomes(some))

    def _outcomes(self, committed: tuple[str, ...]) -> Iterator[Outcome]:
        history = self.history(committed)
        if self.case.kind == "actions":
            if orders := tuple(serial_orders(history, level_of(self.case))):
                end = serially(history.start, _in_order(history, orders[0]))[0][-1]
                yield Outcome(committed, orders, shown(self.case, end))
            return
        # An engine may evaluate a statement again after a winner, so only the values decide.
        found: dict[str, tuple[list[tuple[str, ...]], Rows]] = {}
        in_log = sorted(
            history.transactions, key=lambda one: (one.began, 1) if one.committed is None else (one.place, 0)
        )
        log = tuple(one.name for one in in_log)
        for order in permutations(committed) if level_of(self.case) == WRITE_SERIALIZABLE else (log,):
            rows = shown(self.case, serially(history.start, _in_order(history, order))[0][-1])
            found.setdefault(str(rows), ([], rows))[0].append(order)
        for orders_found, rows in found.values():
            yield Outcome(committed, tuple(orders_found), rows)

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """The verdict for each transaction, about writers that keep to the version that they began at.

        ``must commit`` if no other one commits between its begin and its commit, or the documentation promises it;
        ``must conflict`` if there is no serial order with it; ``either`` otherwise: a conflict is right then, but not
        needed.
        """
        steps = self.case.steps
        alone = [
            name
            for name in self.case.transactions
            if self.case.cannot_conflict
            or not any(
                verb == "commit" for verb, _ in steps[steps.index(("begin", name)) : steps.index(("commit", name))]
            )
        ]
        verdicts = dict.fromkeys(alone, MUST_COMMIT)
        others = [name for name in self.case.commits if name not in alone]
        sets = [[*alone, *some] for count in range(1, len(others) + 1) for some in combinations(others, count)]
        fine = [some for some in sets if self.explain(some).order is not None]
        for name in others:
            verdicts[name] = EITHER if any(name in some for some in fine) else MUST_CONFLICT
        return {name: verdicts[name] for name in self.case.transactions}

    def as_json(self) -> dict[str, Any]:
        """``expected`` of the corpus."""
        outcomes = [
            {"committed": list(one.committed), "orders": [list(order) for order in one.orders], "rows": one.rows}
            for one in self.outcomes
        ]
        return {"verdicts": self.verdicts, "outcomes": outcomes}

    # --- rows ---

    @cached_property
    def start(self) -> State:
        """The table at the beginning."""
        if self.case.kind == "statements":
            files = self.case.table["rows"]
            return frozenset(Row((n, i), tuple(row)) for n, rows in enumerate(files) for i, row in enumerate(rows))
        if not self.case.exists:
            return frozenset()
        rows = {Row((_TABLE, ""), (_TABLE,)), Row((_PROTOCOL, ""), (_PROTOCOL,))}
        for app, version in self.case.table.get("applications", {}).items():
            rows.add(Row((_APPLICATION, app, ""), (_APPLICATION, app, version)))
        rows |= {Row((_REMOVED, name), (_REMOVED, name)) for name in self.case.removed}
        for words in self.case.table["files"]:
            name, *more = words.split()
            self.content[name] = self._rows(name)
            hidden = _hidden(more)
            rows |= {row for number, row in enumerate(self.content[name]) if number not in hidden}
        return frozenset(rows)

    def _rows(self, file: str) -> list[Row]:
        rows = self.case.rows(file)
        return [Row((file, n), (_DATA, row["p"], row["q"], row["a"])) for n, row in enumerate(rows)]

    def _operation(self, transaction: CaseTransaction, seen: State) -> Operation:
        if self.case.kind == "statements":
            return operation(transaction.statements)
        removed, added, moves = self._changes(transaction, seen)
        reads = [] if moves else [words for words in transaction.reads if not words.startswith("app ")]
        applications = {words[4:] for words in transaction.reads if words.startswith("app ")}
        identities = {row.identity for row in removed}

        def run(name: str, state: State) -> Effect:
            gone, new = {row for row in state if row.identity in identities}, set(added)
            for words in transaction.does:
                match words.split():
                    case ["property" | "column" | "identity", *_]:
                        gone |= _of(state, _TABLE)
                        new.add(Row((_TABLE, name), (_TABLE,)))
                    case ["protocol", *_]:
                        gone |= _of(state, _PROTOCOL)
                        new.add(Row((_PROTOCOL, name), (_PROTOCOL,)))
                    case ["create" | "replace", *_]:
                        gone |= _of(state, _TABLE) | _of(state, _PROTOCOL)
                        new |= {Row((kind, name), (kind,)) for kind in (_TABLE, _PROTOCOL)}
                    case ["vacuum"]:
                        gone |= _of(state, _REMOVED)
                    case ["restore", file]:
                        gone |= {row for row in _of(state, _REMOVED) if row.values[1] == file}
                    case ["txn", app, version]:
                        new.add(Row((_APPLICATION, app, name), (_APPLICATION, app, version)))
                    case ["domain", domain, text]:
                        gone |= {row for row in _of(state, _DOMAIN) if row.values[1] == domain}
                        new.add(Row((_DOMAIN, domain, name), (_DOMAIN, domain, text)))
            read = frozenset(row for words in reads for row in _matching(words, state))
            heads = frozenset(_of(state, _TABLE) | _of(state, _PROTOCOL))
            known = frozenset(row for row in _of(state, _APPLICATION) if row.values[1] in applications)
            return Effect(frozenset(gone), frozenset(new), (heads, known, read))

        return run

    def _changes(self, transaction: CaseTransaction, seen: State) -> tuple[set[Row], set[Row], bool]:
        """The rows that a transaction removes and adds, and whether it only moves rows."""
        removes = [words.split()[1:] for words in transaction.does if words.startswith("remove ")]
        adds = {words.split()[1]: words.split()[2:] for words in transaction.does if words.startswith("add ")}
        adds |= {words.split()[1]: [] for words in transaction.does if words.startswith("restore ")}
        files = [*removes, *([name, *more] for name, more in adds.items())]
        moves = bool(files) and all(set(words) & set(_MOVED) for words in files)
        if moves:
            left = [row for name, *_ in removes if name not in adds for row in self.content[name] if row in seen]
            for name, more in adds.items():
                if name not in self.content:
                    count = len(self.case.rows(name))
                    self.content[name], left = left[:count], left[count:]
                    if _hidden(more):
                        raise InvalidArgumentError(f"{transaction.name} moves rows to {name}, and hides some of them")
            return set(), set(), True
        removed: set[Row] = set()
        added: set[Row] = set()
        for name, *_ in removes:
            hidden = _hidden(adds[name]) if name in adds else range(len(self.content[name]))
            removed |= {self.content[name][number] for number in hidden if self.content[name][number] in seen}
        for name, more in adds.items():
            self.content.setdefault(name, self._rows(name))
            hidden = _hidden(more)
            # A vector that shrinks brings rows back, as RESTORE does.
            added |= {row for number, row in enumerate(self.content[name]) if number not in hidden}
        return removed, added - seen, False


def shown(case: Case, state: Iterable[Row]) -> Rows:
    """The rows of a table in the form of the corpus."""
    if case.kind == "statements":
        values = [list(row.values) for row in state]
        return sorted(values, key=lambda row: [(value is None, value or 0) for value in row])
    files: dict[str, list[int]] = {}
    for row in state:
        if row.values[0] == _DATA:
            file, number = origin(row)
            files.setdefault(file, []).append(number)
    return {file: spans(numbers) for file, numbers in sorted(files.items())}


def spans(numbers: Iterable[int]) -> str:
    """A list such as ``0-2,7``; a number that is there twice is written twice."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def origin(row: Row) -> tuple[str, int]:
    """Of a case of actions: the file for which a row was written, and its ordinal there."""
    return cast("tuple[str, int]", row.identity)


def _in_log(one: Transaction) -> tuple[int, int]:
    """The place of a transaction in the log; one that read only stands at the version that it saw."""
    return (one.began, 1) if one.committed is None else (one.committed, 0)


def _in_order(history: History, names: Sequence[str]) -> list[Transaction]:
    by_name: Mapping[str, Transaction] = {one.name: one for one in history.transactions}
    return [by_name[name] for name in names]


def _hidden(words: Sequence[str]) -> set[int]:
    given = next((word[len("vector=") :] for word in words if word.startswith("vector=")), None)
    return set(hidden_rows(given)) if given else set()


def _of(state: State, kind: str) -> set[Row]:
    return {row for row in state if row.values[0] == kind}


def _matching(words: str, state: State) -> list[Row]:
    """The rows for which a predicate is true."""
    rows = [row for row in state if row.values[0] == _DATA]
    return rows if words == "everything" else [row for row in rows if _holds(words, row.values[1:])]


@lru_cache(maxsize=10_000)
def _holds(words: str, values: tuple[Any, ...]) -> bool:
    """A predicate of Spark's SQL over one row, by SQLite."""
    text = re.sub(r"<=>", "IS", words.replace("AS STRING", "AS TEXT"))
    with closing(sqlite3.connect(":memory:")) as database:
        found = database.execute(f"SELECT 1 FROM (SELECT ? AS p, ? AS q, ? AS a) WHERE {text}", values)  # noqa: S608
        return found.fetchone() is not None
