"""The rules of a table's rows: CHECK constraints, invariants and generated columns; and the values that the table gives
if a writer does not: generated values, defaults, and the numbers of identity columns.

Rules are SQL in the log, bound to the schema by which rows are written. If this engine cannot parse or bind a rule, it
refuses to write rows to the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.python_values import python_rows
from refdelta.arrow.schema import arrow_field
from refdelta.core.log.actions import AnyAction, Metadata, Protocol
from refdelta.core.log.json_text import read_json
from refdelta.engine.parquet.fit import plan_fit
from refdelta.errors import (
    ColumnNotFoundError,
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidLogError,
    PredicateError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from refdelta.operations.shared.identity import Numbering
from refdelta.table.evolution import as_nullable
from refdelta.table.features import GENERATION, features_of
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_nested,
    parse_schema,
    physical_name,
)

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.expressions.expression import Predicate, Value

INVARIANTS = "delta.invariants"
DEFAULT = "CURRENT_DEFAULT"
_SHOWN = 200


class RowCheck(msgspec.Struct, frozen=True):
    """A predicate that must be true for every row; null is not true.

    Attributes:
        feature: the table feature of the rule.
        what: its kind and name, for errors.
        sql: its SQL in the log.
        predicate: the same, bound to the table's schema.
        column: the generated column whose value it checks; None for other rules.
    """

    feature: str
    what: str
    sql: str
    predicate: Predicate
    column: str | None = None

    def hold(self, rows: pa.RecordBatch) -> None:
        """Check rows. Raises ``ConstraintViolationError``, with the first row for which the predicate is not true."""
        from refdelta.expressions.evaluate import row_mask

        broken = pc.invert(pc.fill_null(row_mask(self.predicate, rows), False))
        count = pc.sum(broken).as_py() or 0
        if count:
            first = self._first(rows, broken)
            raise ConstraintViolationError(
                f"{self.what} ({self.sql}) does not hold for {count} of the rows; the first has {first}"
            )

    def _first(self, rows: pa.RecordBatch, broken: pa.BooleanArray) -> str:
        from refdelta.expressions.expression import column_refs

        names = dict.fromkeys(column.path[0] for column in column_refs(self.predicate)) or rows.schema.names[:8]
        row = python_rows(rows.select(list(names)).filter(broken).slice(0, 1))[0]
        text = ", ".join(f"{name}={value!r}" for name, value in row.items())
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class MadeColumn(msgspec.Struct, frozen=True):
    """A column to which the table gives a value if a writer does not.

    Attributes:
        field: the column.
        value: the expression of its value, of the column's type.
        generated: True for a generated column, whose value depends on other columns; False for a default.
    """

    field: StructField
    value: Value
    generated: bool


class RowRules(msgspec.Struct, frozen=True):
    """The rules of a table's rows. They can be pickled, since other processes may write rows.

    Attributes:
        checks: the predicates that must be true for every row.
        made: the columns with generated values or defaults, in an order in which they can be computed.
        numbered: the identity columns.
    """

    checks: tuple[RowCheck, ...] = ()
    made: tuple[MadeColumn, ...] = ()
    numbered: tuple[Numbering, ...] = ()

    @classmethod
    def of(
        cls, schema: StructType, configuration: Mapping[str, str] | None, protocol: Protocol, now: int | None = None
    ) -> RowRules:
        """The rules of a table.

        Implements PROTOCOL.md, "CHECK Constraints", "Column Invariants", "Generated Columns", "Default Columns" and
        "Identity Columns". The first two are checked even if the protocol lacks their features, as in delta-spark.

        Args:
            schema: the schema by which rows are written.
            configuration: the table's properties.
            protocol: the table's protocol.
            now: the value of ``current_timestamp``, in microseconds since 1970 (UTC).

        Raises:
            UnsupportedFeatureError: this engine cannot parse or bind a rule; the message names it.
            InvalidLogError: the metadata of an invariant or an identity column is not valid.
            InvalidArgumentError: a rule uses a column that the schema lacks.
        """
        checks = [
            _check(
                "checkConstraints",
                f"the CHECK constraint {name!r}",
                sql,
                schema,
                now,
                f"alter.drop_constraint({name!r}) removes it",
            )
            for name, sql in constraints(configuration).items()
        ]
        checks += [
            _check("invariants", f"the invariant of column {path}", invariant_sql(field, path), schema, now)
            for path, field in _marked(schema)
        ]
        features = features_of(protocol)
        made = list(_made(schema, features, now))
        checks += [_follows(one) for one in made if one.generated]
        found = map(Numbering.of, schema) if "identityColumns" in features else ()
        numbered = tuple(one for one in found if one is not None)
        return cls(tuple(checks), tuple(made), numbered) if checks or made or numbered else NO_RULES

    @classmethod
    def after(cls, snapshot: Snapshot, changes: Iterable[AnyAction] = (), now: int | None = None) -> RowRules:
        """The rules of a table after changes of its metadata or protocol. Raises as :meth:`of`."""
        metadata, protocol = snapshot.metadata, snapshot.protocol
        for action in changes:
            if isinstance(action, Metadata):
                metadata = action
            elif isinstance(action, Protocol):
                protocol = action
        same = metadata is snapshot.metadata
        schema = snapshot.schema if same else parse_schema(metadata.schema_string)
        return cls.of(schema, metadata.configuration, protocol, now)

    @property
    def features(self) -> tuple[str, ...]:
        """The table features with rules that can be checked only by reading the rows of a file."""
        return tuple(
            sorted({*(check.feature for check in self.checks), *(["identityColumns"] if self.numbered else [])})
        )

    def left_out(self, names: Iterable[str]) -> frozenset[str]:
        """The columns to which the table gives values in new rows with the columns ``names``."""
        given = {name.lower() for name in names}
        fields = [*(one.field for one in self.numbered), *(one.field for one in self.made)]
        return frozenset(field.name for field in fields if field.name.lower() not in given)

    def check_given(self, names: Iterable[str], *, update: bool = False) -> None:
        """Refuse values for identity columns where they are not allowed.

        Args:
            names: the columns that have values.
            update: whether the rows exist already: then no identity column may change. Else only columns with
                ``always`` are refused.

        Raises:
            ConstraintViolationError: one of the columns is such an identity column.
        """
        given = {name.lower() for name in names}
        for one in self.numbered:
            if one.field.name.lower() in given and (update or not one.explicit):
                raise ConstraintViolationError(
                    f"{one.field.name!r} is an identity column: "
                    + ("its values cannot change" if update else "the table gives its values; leave it out")
                )

    def of_task(self, number: int) -> RowRules:
        """The rules for one of several tasks, which number rows of identity columns independently of each other."""
        numbered = tuple(msgspec.structs.replace(one, task=number) for one in self.numbered)
        return msgspec.structs.replace(self, numbered=numbered)

    def furthest(self, parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """The furthest marks of several tasks, each as :meth:`marks` returns them."""
        last: dict[str, int] = {}
        steps = {physical_name(one.field): one.step for one in self.numbered}
        for name, mark in (item for part in parts for item in part.items()):
            last[name] = max(last.get(name, mark), mark, key=lambda number: number * steps[name])
        return last

    def marks(self, made: Collection[str], count: int) -> dict[str, int]:
        """The last numbers of the identity columns among ``made`` after ``count`` rows, by physical name."""
        numbered = self.numbered if count else ()
        return {physical_name(one.field): one.number(count - 1) for one in numbered if one.field.name in made}

    def following(self, names: Collection[str]) -> frozenset[str]:
        """The generated columns that are not among ``names``, and so are computed again if these are set."""
        return self.left_out(names) & {one.field.name for one in self.made if one.generated}

    def complete(self, rows: pa.RecordBatch, made: Collection[str], first: int = 0) -> pa.RecordBatch:
        """Set the values of the columns that the table gives.

        Args:
            rows: rows of the table's schema; their values in these columns are replaced.
            made: the names of the columns.
            first: the number of rows that were numbered before these.

        Raises:
            ConstraintViolationError: a null in a column without nulls, or no number is left.
            ExpressionError: a value cannot be computed.
        """
        for numbering in self.numbered if made else ():
            if numbering.field.name in made:
                at = rows.schema.get_field_index(numbering.field.name)
                rows = rows.set_column(at, rows.schema.field(at), numbering.numbers(first, rows.num_rows))
        for one in self.made if made else ():
            if one.field.name in made:
                from refdelta.expressions.evaluate import evaluate_value  # few tables make columns

                at = rows.schema.get_field_index(one.field.name)
                field = arrow_field(replace(one.field, type=as_nullable(one.field.type), nullable=True))
                value = pa.RecordBatch.from_arrays([evaluate_value(one.value, rows)], schema=pa.schema([field]))
                fitted = plan_fit(value.schema, StructType((one.field,))).apply(value)
                rows = rows.set_column(at, rows.schema.field(at), fitted.column(0))
        return rows

    def hold(self, rows: pa.RecordBatch, made: Collection[str] = ()) -> None:
        """Check rows of the table's schema, which may have further columns.

        Args:
            rows: the rows.
            made: the names of the columns that :meth:`complete` has set.

        Raises:
            ConstraintViolationError: a row breaks a rule.
            ExpressionError: a rule cannot be computed for a row.
        """
        for check in self.checks:
            if check.column is None or check.column not in made:
                check.hold(rows)


NO_RULES = RowRules()


def constraints(configuration: Mapping[str, str] | None) -> dict[str, str]:
    """The CHECK constraints among a table's properties, by name."""
    return {
        key[len(CONSTRAINT_PREFIX) :]: sql
        for key, sql in (configuration or {}).items()
        if key.lower().startswith(CONSTRAINT_PREFIX)
    }


def _made(schema: StructType, features: Collection[str], now: int | None) -> Iterator[MadeColumn]:
    """Defaults first, then generated columns, which can depend on all others."""
    if "allowColumnDefaults" in features:
        for field in schema:
            if DEFAULT in field.metadata:
                yield MadeColumn(
                    field, _value("default", "allowColumnDefaults", field, DEFAULT, StructType(), now), False
                )
    if "generatedColumns" in features:
        others = StructType(tuple(field for field in schema if GENERATION not in field.metadata))
        for field in schema:
            if GENERATION in field.metadata:
                yield MadeColumn(field, _value("expression", "generatedColumns", field, GENERATION, others, now), True)


def _value(what: str, feature: str, field: StructField, key: str, scope: StructType, now: int | None) -> Value:
    from refdelta.expressions.assignment import store_assign
    from refdelta.expressions.sql import parse_expression

    sql = str(field.metadata[key])
    mend = _OVERWRITE if key == GENERATION else f"alter.drop_default({field.name!r}) removes it"
    what = f"the {what} of column {field.name} ({sql})"
    if is_nested(field.type) and sql.strip().lower() != "null":
        raise UnsupportedFeatureError([feature], "write to", f"{what} cannot be computed: it is {field.type}")
    try:
        return store_assign(parse_expression(sql, scope, now=now, recorded=True), as_nullable(field.type), field.name)
    except ColumnNotFoundError as error:
        raise InvalidArgumentError(
            f"{what} uses a column that does not exist or is generated itself: {error}; {mend}"
        ) from None
    except (PredicateError, SchemaMismatchError) as error:
        raise UnsupportedFeatureError([feature], "write to", f"{what} cannot be computed: {error}; {mend}") from None


def _follows(one: MadeColumn) -> RowCheck:
    """The check that a generated column has the value of its expression."""
    from refdelta.expressions.expression import Column, Comparison

    field = one.field
    same = Comparison("<=>", Column((field.name,), field.type), one.value)
    sql = str(field.metadata[GENERATION])
    return RowCheck("generatedColumns", f"the expression of the generated column {field.name}", sql, same, field.name)


_OVERWRITE = 'a write with mode="overwrite" and schema_mode="overwrite" replaces the columns'


def _check(feature: str, what: str, sql: str, schema: StructType, now: int | None, mend: str = _OVERWRITE) -> RowCheck:
    from refdelta.expressions.sql import parse_predicate

    try:
        return RowCheck(feature, what, sql, parse_predicate(sql, schema, now=now, recorded=True))
    except ColumnNotFoundError as error:
        raise InvalidArgumentError(f"{what} ({sql}) uses a column that does not exist: {error}; {mend}") from None
    except PredicateError as error:
        raise UnsupportedFeatureError([feature], "write to", f"{what} cannot be checked: {error}; {mend}") from None


def invariant_sql(field: StructField, path: str) -> str:
    """The SQL of a column's invariant. Raises ``InvalidLogError`` if its metadata is not valid."""
    try:
        return str(read_json(field.metadata[INVARIANTS])["expression"]["expression"])
    except (ValueError, TypeError, KeyError):
        raise InvalidLogError(
            f"the invariant of column {path} is not valid: {field.metadata[INVARIANTS]!r}; {_OVERWRITE}"
        ) from None


def _marked(schema: StructType, above: str = "") -> Iterator[tuple[str, StructField]]:
    """The columns and fields of structs with an invariant."""
    for field in schema:
        path = f"{above}{field.name}"
        if INVARIANTS in field.metadata:
            yield path, field
        if isinstance(field.type, StructType):
            yield from _marked(field.type, f"{path}.")
        elif _hides_marks(field.type):
            raise UnsupportedFeatureError(
                ["invariants"], "write to", f"there is an invariant within the elements of {path}"
            )


def _hides_marks(kind: DataType) -> bool:
    """True if there are invariants within arrays or maps, where PROTOCOL.md does not define them."""
    match kind:
        case ArrayType():
            return _has_marks(kind.element)
        case MapType():
            return _has_marks(kind.key) or _has_marks(kind.value)
    return False


def _has_marks(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(INVARIANTS in field.metadata or _has_marks(field.type) for field in kind)
    return _hides_marks(kind)
