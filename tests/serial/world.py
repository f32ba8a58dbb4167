"""The oracle's table, in plain Python, and what each step of a transaction does to it.

Nothing of the engine is imported here. A transaction is a function of the table that it sees: it returns the table
after it, and what it observed. All of its steps see the table as it was at the beginning.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serial.expressions import Expression, UserError, Value

Row = tuple[Value, ...]
Given = Mapping[str, Value]
"""A row to write, by the names of its columns."""


@dataclass(frozen=True)
class World:
    """A table.

    Attributes:
        columns: names, in order.
        rows: values in the order of the columns; order and identity of rows do not count.
        not_null: columns that hold no null.
        constraints: conditions that are true of every row.
        properties: what users have set.
        clustering: clustering columns; None where the table never was clustered.
        domains: metadata domains of users.
        applications: recorded versions of applications.
        features: those of the table's features that programs drop or rely on.
        partitioned: whether ``p`` is a partition column.
        versions: the table at the versions that can be restored.
        exists: whether there is a table at all.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    not_null: frozenset[str] = frozenset()
    constraints: Mapping[str, Expression] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    clustering: tuple[str, ...] | None = None
    domains: Mapping[str, str] = field(default_factory=dict)
    applications: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    partitioned: bool = False
    versions: Mapping[int, World] = field(default_factory=dict)
    exists: bool = True

    def named(self, row: Row, alias: str = "") -> dict[str, Value]:
        """A row as expressions see it."""
        return {alias + name: value for name, value in zip(self.columns, row, strict=True)}

    def where(self, predicate: Expression | None) -> list[Row]:
        """The rows for which a predicate is true."""
        self.needs(*_columns_of(predicate))
        if predicate is None:
            return list(self.rows)
        return [row for row in self.rows if predicate.of(self.named(row)) is True]

    def row(self, given: Given) -> Row:
        """A row to write: columns that are not given are null, and those that the table lacks are left out."""
        return tuple(given.get(name) for name in self.columns)

    def having(self, row: Row) -> Row:
        """The same row; raises where the table may not hold it."""
        values = self.named(row)
        for name in self.not_null:
            if values.get(name) is None:
                raise UserError(f"{name} is null")
        for name, condition in self.constraints.items():
            if condition.of(values) is not True:
                raise UserError(f"constraint {name}")
        return row

    def needs(self, *names: str) -> None:
        for name in names:
            if name not in self.columns:
                raise UserError(f"no column {name}")

    def with_rows(self, rows: Sequence[Row]) -> World:
        return dataclasses.replace(self, rows=tuple(rows))

    def outcome(self) -> dict[str, object]:
        """What two tables that are the same agree in."""
        return {
            "columns": self.columns,
            "rows": Counter(self.rows),
            "not_null": self.not_null,
            "constraints": frozenset(self.constraints),
            "properties": {name: value for name, value in self.properties.items() if name.startswith("user.")},
            "clustering": self.clustering or (),
            "domains": dict(self.domains),
            "applications": dict(self.applications),
        }


@dataclass
class Staged:
    """What a transaction has staged so far.

    Attributes:
        seen: the table at its beginning.
        after: that table after the transaction's statement.
        appended: rows that it appends.
        domains: the domains that it sets, and with None those that it removes.
        observed: what it saw, in order.
    """

    seen: World
    after: World
    appended: list[Row] = field(default_factory=list)
    domains: dict[str, str | None] = field(default_factory=dict)
    observed: list[object] = field(default_factory=list)

    def append(self, rows: Sequence[Given]) -> None:
        self.appended.extend(self.seen.having(self.seen.row(row)) for row in rows)


# --- steps ---------------------------------------------------------------------------------------------------------
# Each has ``on(staged)``, the oracle's side. The engine's is in ``play``.


@dataclass(frozen=True)
class Read:
    """Read rows."""

    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        staged.observed.append(Counter(staged.seen.where(self.predicate)))


@dataclass(frozen=True)
class Tally:
    """Read rows, and append one row that holds how many there are and the sum of ``v``."""

    id: int
    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        staged.append([self.row([staged.seen.named(row) for row in staged.seen.where(self.predicate)])])

    def row(self, rows: Sequence[Given]) -> Given:
        """The row to append, of the rows that were read."""
        return {"id": self.id, "k": len(rows), "v": sum(row.get("v") or 0 for row in rows), "p": self.id % 2}


@dataclass(frozen=True)
class TallyDomain:
    """Read rows, and write into a metadata domain how many there are."""

    domain: str
    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        SetDomain(self.domain, str(len(staged.seen.where(self.predicate)))).on(staged)


@dataclass(frozen=True)
class SetDomain:
    domain: str
    configuration: str

    def on(self, staged: Staged) -> None:
        if self.domain in staged.domains:
            raise UserError("set already")
        if staged.seen.domains.get(self.domain) == self.configuration:
            return
        if "domainMetadata" not in staged.seen.features:
            raise UserError("no domains")
        staged.domains[self.domain] = self.configuration


@dataclass(frozen=True)
class Count:
    """Add one to the number in a metadata domain; a domain that is not there counts as 0.

    Attributes:
        domain: its name.
        by_transaction: whether the transaction reads the number; else a handle of the same version does, and the
            transaction knows no more than that it sets the domain.
    """

    domain: str
    by_transaction: bool = True

    def on(self, staged: Staged) -> None:
        SetDomain(self.domain, self.next_of(staged.seen.domains)).on(staged)

    def next_of(self, domains: Mapping[str, str]) -> str:
        """What the domain is to say."""
        return str(int(domains.get(self.domain, "0")) + 1)


@dataclass(frozen=True)
class RemoveDomain:
    domain: str

    def on(self, staged: Staged) -> None:
        if self.domain in staged.domains:
            raise UserError("set already")
        if self.domain not in staged.seen.domains:
            raise UserError("no such domain")
        staged.domains[self.domain] = None


@dataclass(frozen=True)
class TallyDomains:
    """Read all metadata domains of users, and append one row that holds how many there are and their sum."""

    id: int

    def on(self, staged: Staged) -> None:
        staged.append([self.row(staged.seen.domains)])

    def row(self, domains: Mapping[str, str]) -> Given:
        """The row to append."""
        values = [int(text) for name, text in domains.items() if not name.startswith("delta.")]
        return {"id": self.id, "k": len(values), "v": sum(values), "p": self.id % 2}


@dataclass(frozen=True)
class Append:
    """Append rows that rest on nothing."""

    rows: tuple[Given, ...]

    def on(self, staged: Staged) -> None:
        staged.append(self.rows)


@dataclass(frozen=True)
class Copy:
    """Append a copy of rows of the table itself.

    Attributes:
        form: how the rows are given to the engine.
        predicate: which rows.
    """

    form: str
    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        staged.append([staged.seen.named(row) for row in staged.seen.where(self.predicate)])


@dataclass(frozen=True)
class Delete:
    predicate: Expression | None

    def on(self, staged: Staged) -> None:
        gone = Counter(staged.seen.where(self.predicate))
        staged.after = staged.after.with_rows(list((Counter(staged.after.rows) - gone).elements()))


@dataclass(frozen=True)
class Update:
    values: Mapping[str, Expression]
    predicate: Expression | None

    def on(self, staged: Staged) -> None:
        seen = staged.seen
        seen.needs(*self.values, *_columns_of(tuple(self.values.values())))
        chosen = Counter(seen.where(self.predicate))
        staged.after = seen.with_rows(
            [_changed(seen, row, self.values, seen.named(row)) if row in chosen else row for row in seen.rows]
        )


def _changed(world: World, row: Row, values: Mapping[str, Expression], scope: Given) -> Row:
    world.needs(*values)
    return world.having(world.row({**world.named(row), **{name: value.of(scope) for name, value in values.items()}}))


@dataclass(frozen=True)
class Clause:
    """A WHEN clause of a MERGE.

    Attributes:
        when: ``matched``, ``not matched``, ``by source``.
        values: None where rows are deleted.
        predicate: for which rows.
    """

    when: str
    values: Mapping[str, Expression] | None = None
    predicate: Expression | None = None


@dataclass(frozen=True)
class Merge:
    """MERGE.

    Attributes:
        source: rows, or a copy of rows of the table itself, or rows that were read and are given as data.
        on: the condition, over columns ``s.`` and ``t.``.
        clauses: its clauses.
    """

    source: tuple[Given, ...] | Copy
    on_: Expression
    clauses: tuple[Clause, ...]

    def on(self, staged: Staged) -> None:
        seen = staged.seen
        parts = [self.on_]
        for clause in self.clauses:
            seen.needs(*(clause.values or ()))
            parts += [*(clause.values or {}).values(), *([clause.predicate] if clause.predicate else [])]
        seen.needs(*(name.removeprefix("s.").removeprefix("t.") for name in _columns_of(tuple(parts))))
        if isinstance(self.source, Copy):
            given: Sequence[Given] = [seen.named(row) for row in seen.where(self.source.predicate)]
        else:
            given = [{name: row.get(name) for name in seen.columns} for row in self.source]
        source = [{f"s.{name}": value for name, value in row.items()} for row in given]
        pairs = [clause for clause in self.clauses if clause.when == "matched"]
        rest = [clause for clause in self.clauses if clause.when == "by source"]
        many = len(pairs) == 1 and pairs[0].values is None and pairs[0].predicate is None
        many = many or not (pairs or rest)
        rows, hit = [], set()
        for row in seen.rows:
            target = seen.named(row, "t.")
            matches = [at for at, one in enumerate(source) if self.on_.of(target | one) is True]
            hit.update(matches)
            if len(matches) > 1 and not many:
                raise UserError("several rows of the source match")
            scope = target | (source[matches[0]] if matches else {})
            clause = _first(pairs if matches else rest, scope)
            if clause is None:
                rows.append(row)
            elif clause.values is not None:
                rows.append(_changed(seen, row, clause.values, scope))
        for at, scope in enumerate(source):
            inserts = [clause for clause in self.clauses if clause.when == "not matched"]
            clause = None if at in hit else _first(inserts, scope)
            if clause is not None:
                seen.needs(*(clause.values or ()))
                values = {name: value.of(scope) for name, value in (clause.values or {}).items()}
                rows.append(seen.having(seen.row(values)))
        staged.after = seen.with_rows(rows)


def _first(clauses: Sequence[Clause], scope: Given) -> Clause | None:
    return next((c for c in clauses if c.predicate is None or c.predicate.of(scope) is True), None)


@dataclass(frozen=True)
class Overwrite:
    """Replace all rows, or those for which a predicate is true."""

    rows: tuple[Given, ...]
    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        seen = staged.seen
        new = [seen.having(seen.row(row)) for row in self.rows]
        for row in new if self.predicate is not None else ():
            if self.predicate.of(seen.named(row)) is not True:
                raise UserError("outside of the predicate")
        left = Counter(seen.rows) - Counter(seen.where(self.predicate))
        staged.after = seen.with_rows([*left.elements(), *new])


@dataclass(frozen=True)
class Write:
    """``write_deltalake`` of rows that come from a generator, so that it begins long before it commits.

    Attributes:
        rows: the rows.
        columns: their columns.
        mode: ``append``, ``overwrite``, ``ignore`` or ``error``.
        schema_mode: None, ``merge`` or ``overwrite``.
        predicate: which rows are replaced.
    """

    rows: tuple[Given, ...]
    columns: tuple[str, ...]
    mode: str
    schema_mode: str | None = None
    predicate: Expression | None = None

    def on(self, staged: Staged) -> None:
        world = staged.seen
        if not world.exists:
            new = _made(world, self.columns)
            staged.after = new.with_rows([new.row(row) for row in self.rows])
            return
        if self.mode == "ignore":
            return
        if self.mode == "error":
            raise UserError("there already")
        new = [name for name in self.columns if name not in world.columns]
        if self.schema_mode is None and new:
            raise UserError(f"no column {new[0]}")
        columns = self.columns if self.schema_mode == "overwrite" else (*world.columns, *new)
        needed = {*(world.clustering or ()), *(["p"] if world.partitioned else [])}
        if not needed <= set(columns) or not _columns_of(tuple(world.constraints.values())) <= set(columns):
            raise UserError("a column that is needed goes")
        after = dataclasses.replace(world, columns=columns, rows=())
        if self.schema_mode == "overwrite":
            after = dataclasses.replace(after, not_null=frozenset())
        else:
            after = after.with_rows([after.row(world.named(row)) for row in world.rows])
        added = [after.having(after.row({name: row.get(name) for name in self.columns})) for row in self.rows]
        if self.mode == "overwrite":
            for row in added if self.predicate is not None else ():
                if self.predicate.of(after.named(row)) is not True:
                    raise UserError("outside of the predicate")
            after = after.with_rows(list((Counter(after.rows) - Counter(after.where(self.predicate))).elements()))
        staged.after = after.with_rows([*after.rows, *added])


@dataclass(frozen=True)
class Create:
    """Create a table without rows, or replace the one that is there.

    Attributes:
        columns: its columns.
        mode: where there is a table: ``error``, ``ignore``, or ``overwrite``, which replaces it.
        properties: what users set, beside the properties of the program.
    """

    columns: tuple[str, ...]
    mode: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def on(self, staged: Staged) -> None:
        world = staged.after
        if world.exists and self.mode == "ignore":
            return
        if world.exists and self.mode == "error":
            raise UserError("there already")
        staged.after = dataclasses.replace(_made(world, self.columns), properties=self.properties)


def _made(world: World, columns: tuple[str, ...]) -> World:
    """A new table without rows, in the place of another one or of none. The history goes on, with its features, the
    domains of users and the versions of applications.
    """
    return dataclasses.replace(
        world,
        exists=True,
        columns=columns,
        rows=(),
        not_null=frozenset(),
        constraints={},
        properties={},
        clustering=None if world.clustering is None else (),
        partitioned=False,
    )


@dataclass(frozen=True)
class Attempt:
    """A statement or a read that may fail, and the rows that are appended after it went well, or failed."""

    step: Read | Delete | Update | Merge | Overwrite
    well: tuple[Given, ...]
    failed: tuple[Given, ...]

    def on(self, staged: Staged) -> None:
        after, observed = staged.after, len(staged.observed)
        try:
            self.step.on(staged)
        except UserError:
            staged.after = after
            del staged.observed[observed:]
            rows = self.failed
        else:
            rows = self.well
        staged.append(rows)


# --- the table is altered --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddConstraint:
    name: str
    condition: Expression

    def on(self, staged: Staged) -> None:
        world = staged.after
        if self.name in world.constraints:
            raise UserError("there already")
        world.needs(*_columns_of(self.condition))
        after = dataclasses.replace(world, constraints={**world.constraints, self.name: self.condition})
        for row in after.rows:
            after.having(row)
        staged.after = dataclasses.replace(after, features=after.features | {"checkConstraints"})


@dataclass(frozen=True)
class DropConstraint:
    name: str

    def on(self, staged: Staged) -> None:
        left = dict(staged.after.constraints)
        if left.pop(self.name, None) is None:
            raise UserError("no such constraint")
        staged.after = dataclasses.replace(staged.after, constraints=left)


def _columns_of(expression: object) -> set[str]:
    if dataclasses.is_dataclass(expression):
        own = {expression.name} if type(expression).__name__ == "Column" else set()  # type: ignore[attr-defined]
        return own.union(*(_columns_of(getattr(expression, f.name)) for f in dataclasses.fields(expression)))
    return set().union(*map(_columns_of, expression)) if isinstance(expression, tuple) else set()


def _mapped(world: World) -> None:
    if "columnMapping" not in world.features:
        raise UserError("columns are not mapped")


def _unused(world: World, name: str) -> None:
    if any(name in _columns_of(condition) for condition in world.constraints.values()):
        raise UserError("a constraint rests on it")


@dataclass(frozen=True)
class DropColumn:
    name: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        world.needs(self.name)
        _mapped(world)
        _unused(world, self.name)
        if self.name in (world.clustering or ()) or (world.partitioned and self.name == "p"):
            raise UserError("the table is clustered or partitioned by it")
        kept = [name for name in world.columns if name != self.name]
        rows = [tuple(world.named(row)[name] for name in kept) for row in world.rows]
        staged.after = dataclasses.replace(
            world, columns=tuple(kept), rows=tuple(rows), not_null=world.not_null - {self.name}
        )


@dataclass(frozen=True)
class RenameColumn:
    name: str
    new: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        world.needs(self.name)
        _mapped(world)
        _unused(world, self.name)
        if self.new in world.columns:
            raise UserError("there already")

        def renamed(names):
            return tuple(self.new if name == self.name else name for name in names)

        staged.after = dataclasses.replace(
            world,
            columns=renamed(world.columns),
            not_null=frozenset(renamed(world.not_null)),
            clustering=None if world.clustering is None else renamed(world.clustering),
        )


@dataclass(frozen=True)
class AddColumn:
    name: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        if self.name in world.columns:
            raise UserError("there already")
        staged.after = dataclasses.replace(
            world, columns=(*world.columns, self.name), rows=tuple((*row, None) for row in world.rows)
        )


@dataclass(frozen=True)
class SetNotNull:
    name: str

    def on(self, staged: Staged) -> None:
        staged.after.needs(self.name)
        after = dataclasses.replace(staged.after, not_null=staged.after.not_null | {self.name})
        for row in after.rows:
            after.having(row)
        staged.after = after


@dataclass(frozen=True)
class SetProperty:
    name: str
    value: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        features = world.features | (FEATURES.get(self.name, frozenset()) if self.value == "true" else set())
        properties = {**world.properties, self.name: self.value}
        staged.after = dataclasses.replace(world, properties=properties, features=features)


@dataclass(frozen=True)
class ClusterBy:
    columns: tuple[str, ...]

    def on(self, staged: Staged) -> None:
        world = staged.after
        world.needs(*self.columns)
        if self.columns == (world.clustering or ()) and (world.clustering is not None or not self.columns):
            return
        if world.partitioned:
            raise UserError("partitioned")
        features = world.features | {"clustering", "domainMetadata"}
        staged.after = dataclasses.replace(world, clustering=self.columns, features=features)


@dataclass(frozen=True)
class Restore:
    version: int

    def on(self, staged: Staged) -> None:
        now, then = staged.after, staged.seen.versions[self.version]
        clustering = (then.clustering or ()) if now.clustering is not None else then.clustering
        staged.after = dataclasses.replace(
            now,
            columns=then.columns,
            rows=then.rows,
            not_null=then.not_null,
            constraints=then.constraints,
            properties=then.properties,
            clustering=clustering,
            partitioned=then.partitioned,
        )


# --- no row changes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rearrange:
    """``compact``, ``z_order``, ``cluster`` or ``purge``."""

    how: str

    def on(self, staged: Staged) -> None:
        if self.how == "z_order":
            staged.seen.needs("k", "v")
            if staged.seen.clustering is not None:
                raise UserError("clustered")
        if self.how == "cluster" and not staged.seen.clustering:
            raise UserError("not clustered")


@dataclass(frozen=True)
class Backfill:
    """Give row ids to some files that have none, on a table that supports row tracking."""

    def on(self, staged: Staged) -> None:
        pass


@dataclass(frozen=True)
class AddFeature:
    name: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        brings = {self.name, *({"domainMetadata"} if self.name == "rowTracking" else ())}
        staged.after = dataclasses.replace(world, features=world.features | brings)


@dataclass(frozen=True)
class Vacuum:
    """VACUUM, by the table's own retention."""

    def on(self, staged: Staged) -> None:
        pass


@dataclass(frozen=True)
class DropFeature:
    name: str

    def on(self, staged: Staged) -> None:
        world = staged.after
        if self.name not in world.features:
            raise UserError("not supported")
        if self.name == "checkConstraints" and world.constraints:
            raise UserError("constraints are there")
        if self.name == "domainMetadata":
            if world.features & {"clustering", "rowTracking"}:
                raise UserError("needed")
            world = dataclasses.replace(world, domains={})
        properties = {n: v for n, v in world.properties.items() if n not in _DROPPED_WITH.get(self.name, ())}
        staged.after = dataclasses.replace(world, features=world.features - {self.name}, properties=properties)


FEATURES = {
    "delta.enableDeletionVectors": frozenset({"deletionVectors"}),
    "delta.enableRowTracking": frozenset({"rowTracking", "domainMetadata"}),
    "delta.columnMapping.mode": frozenset({"columnMapping"}),
    "delta.enableInCommitTimestamps": frozenset({"inCommitTimestamp"}),
}
"""What a property that is true brings along."""

_DROPPED_WITH = {"deletionVectors": ("delta.enableDeletionVectors",), "rowTracking": ("delta.enableRowTracking",)}

Statement = (
    Delete | Update | Merge | Overwrite | AddConstraint | DropConstraint | DropColumn | RenameColumn | AddColumn
    | SetNotNull | SetProperty | ClusterBy | Restore | Rearrange | Backfill | AddFeature
)  # fmt: skip
Step = (
    Read | Tally | TallyDomain | SetDomain | Count | RemoveDomain | TallyDomains | Append | Copy | Attempt | Statement
    | Write | Create | Vacuum | DropFeature
)  # fmt: skip
_REARRANGING = {Rearrange, Backfill}


@dataclass(frozen=True)
class Transaction:
    """What one transaction does.

    Attributes:
        steps: in order.
        isolation: the level that it asks for; None for the table's.
        application: its application id and version, if it writes with one.
    """

    steps: tuple[Step, ...]
    isolation: str | None = None
    application: tuple[str, int] | None = None

    @property
    def blind(self) -> bool:
        """Whether it appends rows and rests on none."""
        first = self.steps[0]
        if isinstance(first, Write):
            return first.mode == "append" and first.schema_mode is None
        reads = any(isinstance(step, Count) and step.by_transaction for step in self.steps)
        kinds = set(map(type, self.steps))
        return Append in kinds and kinds <= {Append, SetDomain, RemoveDomain, Count} and not reads

    @property
    def moves_rows_only(self) -> bool:
        """Whether it rearranges files and writes no value, so that nothing rests on what it has read: such a commit is
        under snapshot isolation.
        """
        kinds = set(map(type, self.steps))
        return bool(kinds & _REARRANGING) and kinds <= _REARRANGING | {Read} and self.application is None

    def on(self, world: World) -> tuple[World, list[object]]:
        """Run it by itself.

        Returns:
            The table after it, and what it observed.

        Raises:
            UserError: a step fails and the transaction does not expect it.
        """
        if not world.exists and not isinstance(self.steps[0], Create | Write):
            raise UserError("no table")
        recorded = world.applications
        skipped = self.application is not None and recorded.get(self.application[0], -1) >= self.application[1]
        staged = Staged(world, world)
        for step in self.steps:
            step.on(staged)
        if skipped:
            return world, staged.observed
        after = staged.after.with_rows([*staged.after.rows, *staged.appended])
        domains = {**after.domains, **staged.domains}
        after = dataclasses.replace(after, domains={name: text for name, text in domains.items() if text is not None})
        if self.application is not None:
            after = dataclasses.replace(after, applications={**recorded, self.application[0]: self.application[1]})
        return after, staged.observed
