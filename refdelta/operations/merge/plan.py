"""The plan of a MERGE: its request, and the condition and clauses bound to the schemas of both sides."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.field_metadata import declared_schema
from refdelta.arrow.schema import arrow_field, from_arrow
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.expressions.expression import columns
from refdelta.expressions.predicate import FALSE, TRUE, disjunction
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.dml.assign import Assignment, expressions, fitting, path_in
from refdelta.operations.merge.join import JoinCondition, target_predicate, without_alias
from refdelta.operations.shared.row_rules import NO_RULES, RowRules
from refdelta.operations.write.column_declarations import check_added
from refdelta.operations.write.target import with_schema
from refdelta.table.column_names import named_path
from refdelta.table.evolution import as_nullable, merge_schemas
from refdelta.table.types import VOID, ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.expressions.expression import Predicate
    from refdelta.operations.merge.join import KeyValues

Kind = Literal["update", "delete", "insert"]
When = Literal["matched", "not matched", "not matched by source"]


@dataclass(frozen=True)
class MergeClause:
    """One WHEN clause.

    Attributes:
        when: the rows of the clause.
        kind: the action on these rows.
        predicate: a further condition, as SQL; None for all rows of the clause.
        values: SQL by column; None for ``*``, all columns by name.
        except_columns: columns that ``*`` leaves out.
    """

    when: When
    kind: Kind
    predicate: str | None = None
    values: Mapping[str, str] | None = None
    except_columns: tuple[str, ...] = ()

    @property
    def star(self) -> bool:
        """True for UPDATE * and INSERT *."""
        return self.kind != "delete" and self.values is None


@dataclass(frozen=True)
class MergeRequest:
    """A request for MERGE; see :meth:`refdelta.DeltaTable.merge` for the attributes.

    Attributes:
        predicate: the ON condition, SQL in Spark's dialect.
        source_alias: the name of the source in all expressions.
        target_alias: the name of the table in all expressions.
        merge_schema: whether columns that only the source has are added to the table.
        timezone: the zone of the source's times without one.
        clauses: the clauses, in order.
    """

    predicate: str
    source_alias: str
    target_alias: str
    merge_schema: bool
    timezone: str | None = None
    clauses: tuple[MergeClause, ...] = ()

    @staticmethod
    def of(
        predicate: str,
        source_alias: str | None,
        target_alias: str | None,
        merge_schema: bool,
        timezone: str | None = None,
    ) -> MergeRequest:
        """The request of a call, still without clauses.

        Raises:
            InvalidArgumentError: an argument has a wrong type.
        """
        return MergeRequest(
            predicate,
            arguments.text("source_alias", source_alias) or "s",
            arguments.text("target_alias", target_alias) or "t",
            arguments.flag("merge_schema", merge_schema),
            arguments.timezone("timezone", timezone),
        )

    def check(self) -> None:
        """Check the clauses by SQL's rules.

        Raises:
            InvalidArgumentError: there is no clause, or one follows a clause of its kind that applies to all rows.
        """
        if not self.clauses:
            raise InvalidArgumentError("a MERGE needs at least one clause: when_matched_..., when_not_matched_...")
        for when in ("matched", "not matched", "not matched by source"):
            own = [clause for clause in self.clauses if clause.when == when]
            for clause in own[:-1]:
                if clause.predicate is None:
                    raise InvalidArgumentError(
                        f"of several WHEN {when.upper()} clauses only the last may be without a predicate: "
                        "the ones after it would never apply"
                    )


@dataclass(frozen=True)
class BoundClause:
    """A clause whose expressions are bound.

    Attributes:
        clause: the unbound clause.
        condition: its condition; None for all rows of the clause.
        assignments: the new values.
    """

    clause: MergeClause
    condition: Predicate | None
    assignments: tuple[Assignment, ...] = ()

    @property
    def condition_columns(self) -> frozenset[tuple[str, ...]]:
        """The columns of the condition, as paths that begin with the alias."""
        return frozenset() if self.condition is None else columns(self.condition)

    @property
    def value_columns(self) -> frozenset[tuple[str, ...]]:
        """The columns that the new values depend on, as paths that begin with the alias."""
        return frozenset().union(*(a.columns for a in self.assignments))


@dataclass(frozen=True)
class MergePlan:
    """A bound MERGE.

    Attributes:
        on: its condition.
        target_alias: the alias of the table.
        source_alias: the alias of the source.
        source: the schema of the source.
        clauses: the clauses, in order.
        rules: the rules of the table's rows.
    """

    on: JoinCondition
    target_alias: str
    source_alias: str
    source: StructType
    clauses: tuple[BoundClause, ...]
    rules: RowRules

    @property
    def of_pairs(self) -> list[BoundClause]:
        """The WHEN MATCHED clauses."""
        return self._of("matched")

    @property
    def of_rest(self) -> list[BoundClause]:
        """The WHEN NOT MATCHED BY SOURCE clauses."""
        return self._of("not matched by source")

    @property
    def of_source(self) -> list[BoundClause]:
        """The WHEN NOT MATCHED clauses."""
        return self._of("not matched")

    def _of(self, when: str) -> list[BoundClause]:
        return [clause for clause in self.clauses if clause.clause.when == when]

    @property
    def may_repeat(self) -> bool:
        """True if several rows of the source may match one row of the table."""
        pairs = self.of_pairs
        only = pairs[0] if len(pairs) == 1 else None
        # To delete a row twice is to delete it. Any other action by two rows of the source has no defined result.
        only_deleted = only is not None and only.clause.kind == "delete" and only.condition is None
        return only_deleted or not (pairs or self.of_rest)

    @property
    def numbered(self) -> frozenset[str]:
        """The columns to which the table gives values in inserted rows."""
        found = (self.rules.left_out(_assigned(clause)) for clause in self.clauses if clause.clause.kind == "insert")
        return frozenset().union(*found)

    def marks(self, count: int) -> dict[str, int]:
        """The last numbers of the identity columns after ``count`` inserted rows, by physical name."""
        return self.rules.marks(self.numbered, count)

    def of_task(self, number: int) -> MergePlan:
        """The plan for one of several tasks, which insert rows independently of each other."""
        return replace(self, rules=self.rules.of_task(number))

    def columns_to_find(self, alias: str) -> set[str]:
        """The columns of a side that the first pass needs to find the rows that change."""
        conditions = (clause.condition_columns for clause in (*self.of_pairs, *self.of_rest))
        return {path[1] for path in self.on.columns.union(*conditions) if path[0] == alias}

    def columns_to_change(self, alias: str) -> set[str]:
        """The columns of a side that the second pass needs to find the rows that change, and their new values."""
        values = (clause.value_columns for clause in (*self.of_pairs, *self.of_rest))
        return self.columns_to_find(alias) | {path[1] for path in frozenset().union(*values) if path[0] == alias}

    def reads(self, source: KeyValues) -> Predicate:
        """A predicate over the table's columns that is true for every row, present or future, that the MERGE could
        match or change.

        Args:
            source: the keys of the source.
        """
        # A clause is tried where those before it are not true, so that their disjunction has all rows that change.
        rest = [
            TRUE if clause.condition is None else without_alias(clause.condition, self.target_alias)
            for clause in self.of_rest
        ]
        parts: list[Predicate] = [target_predicate(self.on, self.target_alias, source), *rest]
        return TRUE if TRUE in parts else disjunction(part for part in parts if part != FALSE)


def _assigned(clause: BoundClause) -> set[str]:
    """The columns that a clause sets, as a whole or in part."""
    return {assignment.path[0] for assignment in clause.assignments}


@dataclass(frozen=True)
class MergeSides:
    """The two relations of a MERGE.

    Attributes:
        target_alias: the alias of the table.
        target: the schema of the table before the MERGE.
        source_alias: the alias of the source.
        source: the schema of the source.
        now: the time of the statement, in microseconds since 1970 (UTC).
    """

    target_alias: str
    target: StructType
    source_alias: str
    source: StructType
    now: int

    @property
    def both(self) -> Scope:
        """The columns that ON and WHEN MATCHED may name."""
        return Scope.of_two(self.target_alias, self.target, self.source_alias, self.source)

    def scope(self, when: When) -> Scope:
        """The columns that a clause may name: those of both sides, or of the only one that has a row."""
        if when == "matched":
            return self.both
        if when == "not matched":
            return Scope(((self.source_alias, self.source),))
        return Scope(((self.target_alias, self.target),))


def bind(
    request: MergeRequest, snapshot: Snapshot, source: pa.Schema, now: int
) -> tuple[MergePlan, tuple[AnyAction, ...]]:
    """The bound MERGE, and the actions that change the table's schema; none if it does not change.

    Args:
        request: the condition and the clauses.
        snapshot: the table.
        source: the schema of the source.
        now: the time of the statement, in microseconds since 1970 (UTC).

    Raises:
        PredicateError: SQL cannot be parsed or bound, or a column cannot hold its value.
        ColumnNotFoundError: a side lacks a column.
        InvalidArgumentError: a column is assigned twice, or a clause assigns none.
        SchemaMismatchError: schema evolution finds types that do not fit.
        ConstraintViolationError: a clause sets an identity column that it must not set.
    """
    struct = from_arrow(source)
    sides = MergeSides(request.target_alias, snapshot.schema, request.source_alias, struct, now)
    on = JoinCondition.of(parse_predicate(request.predicate, sides.both, now=now), request.target_alias)
    schema = snapshot.schema
    if request.merge_schema:
        schema = _evolved(request.clauses, sides, declared_schema(source))
    changes = with_schema(snapshot, schema)
    clauses = [_bound(clause, sides, schema, merge_schema=request.merge_schema) for clause in request.clauses]
    only_deletes = all(clause.kind == "delete" for clause in request.clauses)
    rules = NO_RULES if only_deletes else RowRules.after(snapshot, changes, now)
    plan = MergePlan(on, request.target_alias, request.source_alias, struct, tuple(clauses), rules)
    for clause in clauses:
        rules.check_given(_assigned(clause), update=clause.clause.kind != "insert")
    return plan, changes


def _evolved(clauses: Sequence[MergeClause], sides: MergeSides, source: StructType) -> StructType:
    """The table's schema after schema evolution: with columns of the source that ``*`` or a clause by name sets.

    Columns of both sides keep the table's type, unless it is void; structs of both get the fields that only the source
    has. As in delta-spark, an assignment adds what the source has under the name that is assigned, whatever its
    expression is.

    Args:
        clauses: the clauses.
        sides: both relations.
        source: the schema of the source, with the metadata of its fields.

    Raises:
        InvalidArgumentError: the metadata of a new column declares values or rules, which existing rows do not have.
        SchemaMismatchError: a column of both sides has types that do not fit.
    """
    wanted: dict[str, StructField] = {}
    named: list[tuple[str, ...]] = []
    for clause in clauses:
        if clause.when == "not matched by source":
            continue
        left_out = {name.lower() for name in _left_out(clause, sides.target, source)}
        if clause.star:
            wanted |= {f.name.lower(): f for f in source if f.name.lower() not in left_out}
        named += [path_in(name, sides.target, sides.target_alias) for name in clause.values or ()]
    starred = frozenset(wanted)
    for head, *rest in named:
        found, own = source.find(head), wanted.get(head.lower(), sides.target.find(head))
        if found is None or head.lower() in starred:
            continue
        if own is None and not rest:
            wanted[head.lower()] = found
        elif own is not None:
            wanted[head.lower()] = dataclasses.replace(own, type=_grown(own.type, found.type, rest))
    fields = []
    for field in wanted.values():
        own = sides.target.find(field.name)
        if own is None or own.type == VOID or (_nested(own.type) and _nested(field.type)):
            fields.append(field)
    check_added(sides.target, StructType(tuple(fields)))
    return merge_schemas(sides.target, StructType(tuple(fields)), changes="refused", casts=True)


def _grown(own: DataType, new: DataType, path: Sequence[str] = ()) -> DataType:
    """A type with the fields that only another one has, and its types where it is void, at every depth; with a path,
    those at its end alone.
    """
    if own == VOID:
        if not path or not isinstance(new, StructType):
            return VOID if path else new
        own = StructType()
    match own, new:
        case StructType(), StructType():
            fields = []
            for field in own:
                twin = new.find(field.name)
                if twin is not None and (not path or field.name.lower() == path[0].lower()):
                    field = dataclasses.replace(field, type=_grown(field.type, twin.type, path[1:]))  # noqa: PLW2901
                fields.append(field)
            added = [
                f
                for f in new
                if own.find(f.name) is None and (not path or [f.name.lower()] == [p.lower() for p in path])
            ]
            return StructType((*fields, *added))
        case (ArrayType(), ArrayType()) if not path:
            return dataclasses.replace(own, element=_grown(own.element, new.element))
        case (MapType(), MapType()) if not path:
            return dataclasses.replace(own, key=_grown(own.key, new.key), value=_grown(own.value, new.value))
    return own


def _left_out(clause: MergeClause, target: StructType, source: StructType) -> Iterator[str]:
    """The names of the columns that ``*`` leaves out, which are whole columns of either side."""
    for name in clause.except_columns:
        path = named_path(name, target if name in target else source)
        yield path[0] if len(path) == 1 else name


def _nested(data_type: DataType) -> bool:
    return isinstance(data_type, StructType | ArrayType | MapType)


def _bound(clause: MergeClause, sides: MergeSides, schema: StructType, *, merge_schema: bool) -> BoundClause:
    """Bind a clause.

    Args:
        clause: the clause.
        sides: both relations.
        schema: the table's schema after the MERGE.
        merge_schema: whether ``*`` leaves out columns that the source lacks, instead of raising; and a struct that is
            assigned may lack fields of its column, which are null then.

    Raises:
        PredicateError: SQL cannot be parsed or bound, or a column cannot hold its value.
        ColumnNotFoundError: a side lacks a column.
        InvalidArgumentError: a column is assigned twice, or none is.
    """
    scope = sides.scope(clause.when)
    condition = None if clause.predicate is None else parse_predicate(clause.predicate, scope, now=sides.now)
    if clause.kind == "delete":
        return BoundClause(clause, condition)
    if clause.values is not None:
        if not clause.values:
            raise InvalidArgumentError(f"WHEN {clause.when.upper()} THEN {clause.kind.upper()} sets no column")
        found = expressions(
            clause.values,
            schema,
            scope,
            alias=sides.target_alias,
            source=sides.source_alias,
            now=sides.now,
            evolving=merge_schema,
        )
        return BoundClause(clause, condition, tuple(found))
    left_out = {name.lower() for name in _left_out(clause, schema, sides.source)}
    unknown = left_out - {name.lower() for name in (*schema.names, *sides.source.names)}
    if unknown:
        raise ColumnNotFoundError(min(unknown), sides.source.names, "the source or the table, but except_cols names it")
    pairs = [(field, sides.source.find(field.name)) for field in schema if field.name.lower() not in left_out]
    missing = [field.name for field, source in pairs if source is None]
    if missing and not merge_schema:
        raise ColumnNotFoundError(
            missing[0], sides.source.names, f"the source, but {clause.kind} of all columns needs it"
        )
    made: list[Assignment] = []
    for field, source in pairs:
        if source is not None:
            if clause.kind == "insert" and merge_schema and not _same_fields(field.type, source.type):
                # A new row has no other fields to keep, so a null struct of the source is inserted as null.
                made.append(_fitted((field.name,), field, (sides.source_alias, source.name), source))
            else:
                made += _by_name(field, source, (), sides, scope, merge_schema=merge_schema)
    return BoundClause(clause, condition, tuple(made))


def _by_name(
    field: StructField,
    source: StructField,
    parents: tuple[tuple[str, str], ...],
    sides: MergeSides,
    scope: Scope,
    *,
    merge_schema: bool,
) -> list[Assignment]:
    """The assignments for ``field = source`` of a ``*`` form.

    Structs with different fields are set field by field, so that a field that only the table has does not change.
    """
    here = (*parents, (field.name, source.name))
    path = tuple(name for name, _ in here)
    place = (sides.source_alias, *(name for _, name in here))
    own, other = as_nullable(field.type), as_nullable(source.type)
    if isinstance(own, StructType) and isinstance(other, StructType) and not _same_fields(own, other):
        made: list[Assignment] = []
        for inner in own:
            twin = other.find(inner.name)
            if twin is not None:
                made += _by_name(inner, twin, here, sides, scope, merge_schema=merge_schema)
            elif not merge_schema:
                whole = ".".join((*path, inner.name))
                raise ColumnNotFoundError(whole, other.names, "the source, but * sets all columns")
        return made
    if own != other:
        return [_fitted(path, field, place, source)]
    quoted = ".".join(f"`{name.replace('`', '``')}`" for name in path)
    value = ".".join(f"`{name.replace('`', '``')}`" for name in place)
    target = StructType((_chain(path, field),))
    return [dataclasses.replace(a, path=path) for a in expressions({quoted: value}, target, scope, now=sides.now)]


def _same_fields(one: DataType, other: DataType) -> bool:
    """True if two types have fields of the same names at every depth of structs."""
    if not isinstance(one, StructType) or not isinstance(other, StructType):
        return True
    twins = [(field, other.find(field.name)) for field in one]
    return len(one) == len(other) and all(
        twin is not None and _same_fields(field.type, twin.type) for field, twin in twins
    )


def _chain(path: tuple[str, ...], field: StructField) -> StructField:
    """A field within structs, so that ``path`` leads to it."""
    made = field
    for name in reversed(path[:-1]):
        made = StructField(name, StructType((made,)))
    return made


def _fitted(path: tuple[str, ...], field: StructField, place: tuple[str, ...], source: StructField) -> Assignment:
    """The assignment of a column of the source that is cast by value, as in appended data."""
    named = dataclasses.replace(field, name=".".join(path))
    value = functools.partial(_column, place)
    return Assignment(path, fitting(value, arrow_field(source).type, named, "merge_schema=True"), frozenset([place]))


def _column(place: tuple[str, ...], batch: pa.RecordBatch) -> pa.Array:
    return pc.struct_field(batch.column(place[0]), list(place[1:]))
