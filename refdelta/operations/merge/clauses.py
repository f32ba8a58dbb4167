"""The clauses of a MERGE, unbound and bound to the schemas of both sides."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import columns
from refdelta.core.expressions.scope import Scope
from refdelta.core.table.column_names import named_path
from refdelta.core.table.evolution import as_nullable, merge_schemas
from refdelta.core.table.types import ArrayType, DataType, MapType, StructField, StructType
from refdelta.engine.arrow.schema import arrow_field
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.operations.dml.assign import Assignment, expressions, fitting, path_in
from refdelta.operations.write.column_declarations import check_added

if TYPE_CHECKING:
    from refdelta.core.expressions.predicate import Predicate

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


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Check the clauses by SQL's rules.

    Raises:
        InvalidArgumentError: there is no clause, or one follows a clause of its kind that applies to all rows.
    """
    if not clauses:
        raise InvalidArgumentError("a MERGE needs at least one clause: when_matched_..., when_not_matched_...")
    for when in ("matched", "not matched", "not matched by source"):
        own = [clause for clause in clauses if clause.when == when]
        for clause in own[:-1]:
            if clause.predicate is None:
                raise InvalidArgumentError(
                    f"of several WHEN {when.upper()} clauses only the last may be without a predicate: "
                    "the ones after it would never apply"
                )


def evolved(clauses: Sequence[MergeClause], sides: MergeSides, source: StructType) -> StructType:
    """The table's schema after schema evolution: with columns of the source that ``*`` or a clause by name sets.

    Columns of both sides keep the table's type; structs of both get the fields that only the source has. As in
    delta-spark, an assignment adds what the source has under the name that is assigned, whatever its expression is.

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
        if own is None or (_nested(own.type) and _nested(field.type)):
            fields.append(field)
    check_added(sides.target, StructType(tuple(fields)))
    return merge_schemas(sides.target, StructType(tuple(fields)), changes="refused", casts=True)


def _grown(own: DataType, new: DataType, path: Sequence[str] = ()) -> DataType:
    """A type with the fields that only another one has, at every depth; with a path, those at its end alone."""
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


def bind_clause(clause: MergeClause, sides: MergeSides, schema: StructType, *, merge_schema: bool) -> BoundClause:
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


def recorded(clauses: Sequence[MergeClause], when: When) -> str:
    """The clauses of a kind as JSON for the history."""
    shown: list[dict[str, Any]] = []
    for clause in clauses:
        if clause.when == when:
            condition = {} if clause.predicate is None else {"predicate": clause.predicate}
            shown.append({**condition, "actionType": clause.kind})
    return msgspec.json.encode(shown).decode()
