"""Transactions of several calls, in the judge's world.

A :data:`Program` is a function of :class:`Calls`. The same program runs in the judge's world (:class:`Played`), through
the engine (:mod:`model.engine_calls`) and through the rules alone (:mod:`model.core_calls`), each of which has an
implementation of the calls of its own. All calls of a transaction see the table as it was when the transaction began.

What is not a row of the table is one in the judge's world: each metadata domain, the column ``s``, each rule that rows
must satisfy, each table feature that a program adds or drops. Each change of the schema, of the properties or of the
protocol also changes the row that stands for the metadata, which every transaction has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from model.operations import APPLICATION, METADATA, Values, in_order, is_data, plus
from refdelta.conformance.judge import Effect, Row, State

DOMAIN, COLUMN, RULE, FEATURE, PROPERTY = "domain", "column", "rule", "feature", "property"

CLUSTERING = "clustering"
"""The domain that names the clustering column. The others are those of users."""

DOMAINS, PROTECTION = "domainMetadata", "vacuumProtocolCheck"
"""Table features: the one without which no domain can be set, and one that nothing needs."""

TIMES = "in-commit timestamps"
"""The property that enables them."""


class Failed(Exception):
    """A call raised, as it does in the engine. Nothing of it happened, but its caller has learned that it failed."""


@dataclass(frozen=True)
class Condition:
    """A condition on rows.

    Attributes:
        sql: in Spark's dialect.
        holds: the same in Python. It raises ``ZeroDivisionError`` where SQL raises.
    """

    sql: str
    holds: Callable[[int | None, int | None], bool | None]


@dataclass(frozen=True)
class Setting:
    """The new colour of a row.

    Attributes:
        sql: in Spark's dialect.
        makes: the same in Python, of the row's key. It raises ``ZeroDivisionError`` where SQL raises.
    """

    sql: str
    makes: Callable[[int | None], int | None]


@dataclass(frozen=True)
class On:
    """The condition of a MERGE on a row ``t`` of the table and a row ``s`` of the source.

    Attributes:
        sql: in Spark's dialect.
        holds: the same in Python, of the keys of both.
    """

    sql: str
    holds: Callable[[int | None, int | None], bool]


RULES = {
    "small": Condition("a < 7", lambda _, a: a is not None and a < 7),
    "given": Condition("a IS NOT NULL", lambda _, a: a is not None),
}
"""Rules that a table may get: a CHECK constraint, and NOT NULL."""


class Calls(Protocol):
    """What a program can do."""

    def read(self, where: Condition) -> list[Values]:
        """SELECT: the rows, in order."""

    def append(self, *values: Values) -> None:
        """INSERT of these rows."""

    def append_own(self, way: str) -> None:
        """INSERT of all rows of the table itself, which the engine gets as ``scan``, ``list`` or ``generator``."""

    def delete(self, where: Condition) -> None:
        """DELETE."""

    def update(self, where: Condition, to: Setting) -> None:
        """UPDATE SET a."""

    def merge(self, source: Sequence[Values], on: On, *, update: bool = False, insert: bool = True) -> None:
        """MERGE: WHEN MATCHED the colour of the source is taken, WHEN NOT MATCHED its row is inserted. No row of the
        table matches two rows of the source.
        """

    def merge_own(self, on: On, shift: int) -> None:
        """MERGE of the table into itself: WHEN NOT MATCHED a row is inserted whose key is greater by ``shift``."""

    def fails(self, call: Callable[[], object]) -> bool:
        """Whether a call raises. If so, nothing of it happens, and the transaction goes on."""

    def domains(self) -> dict[str, str]:
        """The metadata domains of users."""

    def set_domain(self, name: str, value: str | None) -> None:
        """Set a metadata domain, or with None remove it."""

    def cluster_by(self, column: str) -> None:
        """ALTER TABLE CLUSTER BY."""

    def drop_column(self) -> None:
        """ALTER TABLE DROP COLUMN s."""

    def rename_column(self) -> None:
        """ALTER TABLE RENAME COLUMN s TO r."""

    def retype_column(self) -> None:
        """ALTER TABLE: s becomes a long."""

    def require(self, rule: str) -> None:
        """ALTER TABLE ADD CONSTRAINT or SET NOT NULL: one of :data:`RULES`."""

    def add_feature(self) -> None:
        """Add the feature :data:`PROTECTION`."""

    def drop_feature(self) -> None:
        """Drop the feature :data:`DOMAINS`, and all domains."""

    def enable_times(self) -> None:
        """Enable in-commit timestamps."""

    def compact(self) -> None:
        """OPTIMIZE."""

    def cluster(self) -> None:
        """OPTIMIZE of a clustered table."""

    def restore(self) -> None:
        """RESTORE version 0."""


Program = Callable[[Calls], None]


class Played:
    """A transaction in the judge's world.

    Args:
        name: of the transaction.
        state: the table as it sees it.
        created: version 0.
    """

    def __init__(self, name: str, state: State, created: State) -> None:
        self.name, self.state, self.created = name, state, created
        self.removed: set[Row] = set()
        self.added: set[Row] = set()
        self.seen: list[Hashable] = [frozenset(self._of(METADATA))]
        self._numbers = count()

    @property
    def effect(self) -> Effect:
        """What it did so far."""
        return Effect(frozenset(self.removed), frozenset(self.added), tuple(self.seen))

    # --- rows ---

    def read(self, where: Condition) -> list[Values]:
        found = self._rows(where)
        self.seen.append(found)
        return in_order(row.values for row in found)

    def append(self, *values: Values) -> None:
        self._add((self._new(at), one) for at, one in enumerate(values))

    def append_own(self, way: str) -> None:
        self._add((self._new(row.identity), row.values) for row in self._data())

    def delete(self, where: Condition) -> None:
        self.removed |= self._rows(where)

    def update(self, where: Condition, to: Setting) -> None:
        found = self._rows(where)
        try:
            changed = [(self._new(row.identity), (row.values[0], to.makes(row.values[0]))) for row in found]
        except ZeroDivisionError:
            raise Failed from None
        self._add(changed)
        self.removed |= found

    def merge(self, source: Sequence[Values], on: On, *, update: bool = False, insert: bool = True) -> None:
        rows = self._data()
        matched = {row: [a for k, a in source if on.holds(row.values[0], k)] for row in rows}
        pairs = [(row, colours[0]) for row, colours in matched.items() if colours]
        missing = [one for one in source if not any(on.holds(row.values[0], one[0]) for row in rows)]
        changed = [(self._new(row.identity), (row.values[0], a)) for row, a in pairs] if update else []
        inserted = [(self._new(one), one) for one in missing] if insert else []
        self._add([*changed, *inserted])
        if update:
            self.removed |= {row for row, _ in pairs}

    def merge_own(self, on: On, shift: int) -> None:
        rows = self._data()
        missing = [one for one in rows if not any(on.holds(row.values[0], one.values[0]) for row in rows)]
        self._add((self._new(one.identity), (plus(one.values[0], shift), one.values[1])) for one in missing)

    def fails(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except Failed:
            self.seen.append("it failed")
            return True
        self.seen.append("it did not fail")
        return False

    # --- the rest of the table ---

    def domains(self) -> dict[str, str]:
        found = {row for row in self._of(DOMAIN) if row.values[1] != CLUSTERING}
        self.seen.append(frozenset(found))
        return {row.values[1]: row.values[2] for row in found}

    def set_domain(self, name: str, value: str | None) -> None:
        if not self._of(FEATURE, DOMAINS):
            raise Failed
        if value is None and not self._of(DOMAIN, name):
            raise Failed
        self._set_domain(name, value)

    def cluster_by(self, column: str) -> None:
        if column not in ("k", "a") and not self._of(COLUMN, column):
            raise Failed
        self._set_domain(CLUSTERING, column)

    def drop_column(self) -> None:
        (column,) = self._column()
        if self._of(DOMAIN, CLUSTERING, "s"):
            raise Failed
        self._alter()
        self.removed.add(column)

    def rename_column(self) -> None:
        (column,) = self._column()
        self._replace(column, (COLUMN, "r", column.values[2]))

    def retype_column(self) -> None:
        (column,) = self._column()
        if column.values[2] != "long":
            self._replace(column, (COLUMN, "s", "long"))

    def require(self, rule: str) -> None:
        if self._of(RULE, rule):
            if rule == "small":
                raise Failed
            return
        if any(not RULES[rule].holds(*row.values) for row in self._data()):
            raise Failed
        self._alter((RULE, rule))

    def add_feature(self) -> None:
        if not self._of(FEATURE, PROTECTION):
            self._alter((FEATURE, PROTECTION))

    def drop_feature(self) -> None:
        if not self._of(FEATURE, DOMAINS) or self._of(DOMAIN, CLUSTERING):
            raise Failed
        self._alter()
        self.removed |= self._of(FEATURE, DOMAINS) | self._of(DOMAIN)

    def enable_times(self) -> None:
        if not self._of(PROPERTY, TIMES):
            self._alter((PROPERTY, TIMES))

    def compact(self) -> None:
        pass

    def cluster(self) -> None:
        if not self._of(DOMAIN, CLUSTERING):
            raise Failed

    def restore(self) -> None:
        """All but the versions of applications, the domains of users, and features that came later. The metadata stays
        as it is where columns, rules and properties are what they were then.
        """
        now, then = ({row for row in state if not _stays(row)} for state in (self.state, self.created))
        kept = {FEATURE} if _table(now) != _table(then) or self._lost(FEATURE) else {FEATURE, METADATA}
        self.removed |= {row for row in now - then if row.values[0] not in kept}
        self.added |= {row for row in then - now if row.values[0] not in kept - {FEATURE}}

    # --- small parts ---

    def _data(self) -> set[Row]:
        return {row for row in self.state if is_data(row)}

    def _of(self, *values: str) -> set[Row]:
        """The rows that begin with these words."""
        return {row for row in self.state if row.values[: len(values)] == values}

    def _lost(self, kind: str) -> bool:
        """Whether the table has lost something of a kind since version 0."""
        return any(row.values[0] == kind and not self._of(*row.values) for row in self.created)

    def _column(self) -> set[Row]:
        found = self._of(COLUMN, "s")
        if not found:
            raise Failed
        return found

    def _rows(self, where: Condition) -> frozenset[Row]:
        try:
            return frozenset(row for row in self._data() if where.holds(*row.values))
        except ZeroDivisionError:
            raise Failed from None

    def _new(self, source: Hashable) -> Hashable:
        return self.name, source

    def _add(self, rows: Iterable[tuple[Hashable, Values]]) -> None:
        """Rows of one call; each must satisfy the rules of the table."""
        number = next(self._numbers)
        found = {Row((number, identity), values) for identity, values in rows}
        rules = [RULES[row.values[1]] for row in self._of(RULE)]
        if not all(rule.holds(*row.values) for row in found for rule in rules):
            raise Failed
        self.added |= found

    def _alter(self, *others: tuple[str, ...]) -> None:
        """Other metadata, and further rows that stand for what the table has now."""
        for row in self._of(METADATA):
            self.removed.add(row)
            self.added.add(Row((self.name, row.identity), row.values))
        self.added |= {Row((self.name, values), values) for values in others}

    def _replace(self, row: Row, values: tuple[str, ...]) -> None:
        self._alter()
        self.removed.add(row)
        self.added.add(Row((self.name, row.identity), values))

    def _set_domain(self, name: str, value: str | None) -> None:
        before = self._of(DOMAIN, name)
        if value is not None and any(row.values[2] == value for row in before):
            self.seen.append(frozenset(before))
            return
        self.removed |= before
        if value is not None:
            self.added.add(Row((self.name, DOMAIN, name), (DOMAIN, name, value)))


def _stays(row: Row) -> bool:
    kind, *rest = row.values
    return kind == APPLICATION or (kind == DOMAIN and rest[0] != CLUSTERING)


def _table(rows: Iterable[Row]) -> set[tuple[str, ...]]:
    """What the metadata says: all but rows, domains and features."""
    return {row.values for row in rows if not is_data(row) and row.values[0] not in (DOMAIN, FEATURE)}


@dataclass(frozen=True)
class Programmed:
    """A program as an operation of the judge's world.

    Attributes:
        program: what it does.
        created: version 0 of the table.
    """

    program: Program
    created: State

    alters = False

    def __call__(self, name: str, state: State) -> Effect:
        return self._run(name, state)[0]

    def fails(self, state: State) -> bool:
        """Whether it raises where the table is so. Then nothing of the transaction happens."""
        return self._run("T", state)[1]

    def _run(self, name: str, state: State) -> tuple[Effect, bool]:
        played = Played(name, state, self.created)
        try:
            self.program(played)
        except Failed:
            return Effect(seen=tuple(played.seen)), True
        return played.effect, False
