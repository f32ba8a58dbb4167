"""ALTER TABLE on columns: add, rename, drop, move, widen, nulls, defaults, metadata and identity.

Only the log is written. To rename or drop a column needs column mapping, since files keep the old names. A change of a
type needs type widening, since old files have the narrower type.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.field_metadata import declared_schema
from refdelta.arrow.schema import delta_type
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import (
    ColumnNotFoundError,
    ConstraintViolationError,
    InternalError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.change import change_schema, change_table, in_json, noted_version
from refdelta.operations.shared.identity import START, Numbering, with_marks
from refdelta.operations.shared.rewrite import find_matches
from refdelta.operations.shared.row_rules import DEFAULT, INVARIANTS
from refdelta.operations.write.column_declarations import check_added, check_default, with_mark
from refdelta.schema import Schema
from refdelta.table.char_varchar import NOTE
from refdelta.table.column_mapping import MODE
from refdelta.table.column_names import dotted, named_path, split_path
from refdelta.table.evolution import as_nullable, can_widen, merge_schemas, with_type_changes
from refdelta.table.features import GENERATION
from refdelta.table.field_names import check_field_names
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.schema_edit import Path, edited, find_path, with_field, with_part
from refdelta.table.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    every_field,
    is_nested,
    parse_schema,
    physical_name,
    schema_json,
    type_named,
)

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


_STATS_COLUMNS = "delta.dataSkippingStatsColumns"
_EXPRESSIONS = (GENERATION, INVARIANTS)
_MADE = frozenset((GENERATION, START))
_WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def add_columns(txn: Transaction, snapshot: Snapshot, given: Any) -> None:
    """Stage ADD COLUMNS. The new columns are null in the existing rows.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        given: the columns, as :meth:`refdelta.api.alter.TableAlterer.add_columns` takes them.

    Raises:
        UnsupportedTypeError: Delta has no type for an Arrow type.
        SchemaMismatchError: a column exists already, or Delta cannot store its name.
        InvalidArgumentError: there are no fields, a column is not nullable, a path does not lead to a struct, or the
            metadata of a field declares values or rules, which existing rows do not have.
    """
    fields = _fields_of(given)
    if not fields:
        raise InvalidArgumentError("there is no column to add")
    schema = snapshot.schema
    new: dict[str, StructField] = {}  # columns after those of the schema, by name in lower case
    for item in fields:
        if not item.nullable or as_nullable(item.type) != item.type:
            raise InvalidArgumentError(
                f"cannot add column {item.name!r}: it and its fields must be nullable, since existing rows have no "
                "value for it"
            )
        check_added(StructType(), StructType((item,)))
        path = split_path(item.name)
        if len(path) == 1 and path[0] not in schema and path[0].lower() not in new:
            new[path[0].lower()] = _placed(schema, path, item)
            continue
        schema, new = StructType((*schema, *new.values())), {}
        grown = merge_schemas(schema, StructType((_placed(schema, path, item),)), changes="refused")
        if grown == schema:
            raise SchemaMismatchError(f"cannot add column {item.name!r}: the table has it already")
        schema = grown
    schema = StructType((*schema, *new.values()))
    check_field_names(schema, mapped=snapshot.column_mapping_mode != "none", before=snapshot.schema)
    columns = [
        {"column": {"name": f.name, "type": _type_name(f.type), "nullable": True, "metadata": dict(f.metadata)}}
        for f in fields
    ]
    txn.describe("ADD COLUMNS", {"columns": in_json(columns)}, {})
    change_schema(txn, snapshot, schema)


def rename_column(txn: Transaction, snapshot: Snapshot, column: str, new_name: str) -> None:
    """Stage RENAME COLUMN. Files, statistics and partition values do not change.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        column: its name, or a path to a field of a struct.
        new_name: the new last part of its name.

    Raises:
        InvalidArgumentError: the table has no column mapping, or an expression of the table uses the column.
        ColumnNotFoundError: there is no such column.
        SchemaMismatchError: another column has this name.
    """
    path = _field_path(snapshot, column)
    wanted = arguments.text("new_name", new_name) or ""
    _check_mapped(snapshot, "rename")
    after = (*path[:-1], wanted)
    if after == path:
        return
    _check_unused(snapshot, path, "renamed")
    schema = edited(
        snapshot.schema,
        path,
        lambda struct, name: with_field(_struct(struct), name, lambda item: replace(item, name=wanted)),
    )
    check_field_names(schema, mapped=True)
    metadata = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=schema_json(schema),
        partition_columns=[wanted if (name,) == path else name for name in snapshot.partition_columns],
        configuration=_with_stats_columns(snapshot, lambda one: after + one[len(path) :] if _leads(path, one) else one),
    )
    txn.describe("RENAME COLUMN", {"oldColumnPath": dotted(path), "newColumnPath": dotted(after)}, {})
    change_table(txn, snapshot, metadata)


def drop_columns(
    txn: Transaction, snapshot: Snapshot, columns: Sequence[str] | str, *, if_exists: bool = False
) -> None:
    """Stage DROP COLUMNS. Their values stay in the files until these are rewritten, but are not read.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        columns: names, or paths to fields of structs.
        if_exists: ignore columns that the table does not have.

    Raises:
        InvalidArgumentError: the table has no column mapping; a column is a partition or clustering column, is used by
            an expression of the table, or is the only one left in its struct or in the table.
        ColumnNotFoundError: there is no such column.
    """
    names, if_exists = arguments.names("columns", columns) or (), arguments.flag("if_exists", if_exists)
    if not names:
        raise InvalidArgumentError("there is no column to drop")
    _check_mapped(snapshot, "drop")
    schema, uses = snapshot.schema, _uses(snapshot)
    dropped: list[Path] = []
    gone: set[str] = set()  # columns of the schema that are dropped
    for name in names:
        if gone and not (name in schema and schema.field(name).name not in gone):
            schema, gone = _without(schema, gone, dropped[-1][0]), set()
        try:
            path, _ = find_path(schema, named_path(name, schema))
        except ColumnNotFoundError:
            if not if_exists:
                raise
            continue
        _check_is_field(schema, path, name)
        _check_droppable(snapshot, path, uses)
        if len(path) == 1:
            gone.add(path[0])
            if len(gone) == len(schema):
                _without(schema, gone, path[0])
        else:
            schema = edited(schema, path, lambda struct, last: _without(_struct(struct), {last}, last))
        dropped.append(path)
    if not dropped:
        return
    schema = _without(schema, gone, dropped[-1][-1])
    if not set(schema.names) - set(snapshot.partition_columns):
        raise InvalidArgumentError(
            "cannot drop all columns except the partition columns; one other column must be left"
        )

    folded = {_folded(path) for path in dropped}

    def kept(one: Path) -> Path | None:
        return None if any(_folded(one[:length]) in folded for length in range(1, len(one) + 1)) else one

    metadata = msgspec.structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=_with_stats_columns(snapshot, kept)
    )
    txn.describe("DROP COLUMNS", {"columns": in_json([dotted(path) for path in dropped])}, {})
    change_table(txn, snapshot, metadata)


def change_type(txn: Transaction, snapshot: Snapshot, column: str, new_type: Any) -> None:
    """Stage a wider type of a column, or any type of a void one.

    Implements PROTOCOL.md, "Type Widening": the change is recorded in the schema, and files do not change; and "Void
    Type": files have no such column, so that it may get any type, with or without type widening.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        column: its name, or a path; ``element``, ``key`` and ``value`` name the parts of arrays and maps.
        new_type: a type, of Arrow or by the name of a primitive one: ``long`` or ``bigint``, ``decimal(12,2)``.

    Raises:
        InvalidArgumentError: ``delta.enableTypeWidening`` is not set and the column is not void, an expression of the
            table uses the column, or it is a generated or an identity column.
        SchemaMismatchError: the type cannot be widened to the new one.
        ColumnNotFoundError: there is no such column.
    """
    path, old = find_path(snapshot.schema, named_path(column, snapshot.schema))
    new = _type_given(new_type, column)
    if new == old:
        return
    if old == VOID:
        new = as_nullable(new)
    elif is_nested(old) or is_nested(new) or not can_widen(old, new):
        raise SchemaMismatchError(
            f"cannot change column {dotted(path)} from {old} to {new}: {new} is not wider than {old}"
        )
    if old != VOID and not snapshot.properties.enable_type_widening:
        raise InvalidArgumentError(
            f"cannot change the type of column {dotted(path)}: set delta.enableTypeWidening=true first, since readers "
            "must convert the values of old files"
        )
    _check_unused(snapshot, path, "of another type")
    if len(path) == 1 and not _MADE.isdisjoint(snapshot.schema.field(path[0]).metadata):
        raise InvalidArgumentError(
            f"column {dotted(path)} cannot be of another type: it is a generated or an identity column"
        )
    schema = edited(snapshot.schema, path, lambda parent, name: with_part(parent, name, new))
    schema = with_type_changes(snapshot.schema, schema, noted_version(snapshot))
    _describe_change(txn, schema, path)
    change_schema(txn, snapshot, schema)


def set_nullable(txn: Transaction, snapshot: Snapshot, column: str, nullable: bool) -> None:
    """Stage that a column may be null, or, after a check of the existing rows, that it may not.

    Args:
        txn: the transaction. For a column that may not be null, rows with null count as read.
        snapshot: the snapshot that it reads.
        column: its name, or a path to a field of a struct.
        nullable: whether it may be null.

    Raises:
        ConstraintViolationError: the column is null in rows of the table.
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: NOT NULL for a field within an array or a map.
    """
    path, nullable = _field_path(snapshot, column), arguments.flag("nullable", nullable)
    found = _field(snapshot.schema, path)
    if found.nullable == nullable:
        return
    if not nullable:
        _check_never_null(txn, snapshot, path)
    schema = edited(
        snapshot.schema,
        path,
        lambda struct, name: with_field(_struct(struct), name, lambda item: replace(item, nullable=nullable)),
    )
    _describe_change(txn, schema, path)
    change_schema(txn, snapshot, schema)


def move_column(txn: Transaction, snapshot: Snapshot, column: str, after: str | None) -> None:
    """Stage another position of a column, or of a field within its struct.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        column: its name, or a path to a field of a struct.
        after: the name of the column or field that precedes it then; None makes it the first.

    Raises:
        ColumnNotFoundError: there is no such column.
    """
    path = _field_path(snapshot, column)

    def moved(parent: DataType, name: str) -> DataType:
        struct = _struct(parent)
        others = [item for item in struct if item.name != name]
        place = 0
        if after is not None:
            before = struct.field(named_path(after, struct)[-1], where=".".join(path[:-1]) or "the table")
            if before.name == name:
                return struct
            place = others.index(before) + 1
        return StructType((*others[:place], struct.field(name), *others[place:]))

    schema = edited(snapshot.schema, path, moved)
    if schema == snapshot.schema:
        return
    _describe_change(txn, schema, path, position="FIRST" if after is None else f"AFTER {after}")
    change_schema(txn, snapshot, schema)


# --- checks ------------------------------------------------------------------------------------------------------


def _check_mapped(snapshot: Snapshot, verb: str) -> None:
    if snapshot.column_mapping_mode == "none":
        raise InvalidArgumentError(
            f"cannot {verb} columns without column mapping; set {MODE}=name first, which rewrites no file"
        )


def _check_unused(snapshot: Snapshot, path: Path, change: str) -> None:
    """Refuse a change of a column that a constraint, an invariant or another column is computed from.

    Any part of the path counts, anywhere in an expression. So some changes are refused that would be safe, but no other
    is allowed.
    """
    _check_not_in(_uses(snapshot), snapshot, path, change)


# The first use of each word in an expression of the table, by the word in lower case: its place, and the text.
_Uses = dict[str, tuple[str, str]]


def _uses(snapshot: Snapshot) -> _Uses:
    texts = {
        f"the constraint {key[len(CONSTRAINT_PREFIX) :]!r}": text
        for key, text in (snapshot.metadata.configuration or {}).items()
        if key.lower().startswith(CONSTRAINT_PREFIX)
    }
    for item in every_field(snapshot.schema):
        for key in _EXPRESSIONS:
            if key in item.metadata:
                texts[f"column {item.name!r} ({key})"] = str(item.metadata[key])
    found: _Uses = {}
    for use in texts.items():
        for word in _words(use[1]):
            found.setdefault(word, use)
    return found


def _words(text: str) -> Iterator[str]:
    return ((quoted.replace("``", "`") or plain).lower() for quoted, plain in _WORD.findall(text))


def _check_not_in(uses: _Uses, snapshot: Snapshot, path: Path, change: str) -> None:
    outer = snapshot.schema.field(path[0])
    if len(path) > 1 and NOTE in outer.metadata:
        note = f"the char and varchar declaration of column {outer.name!r}", str(outer.metadata[NOTE])
        uses = {**dict.fromkeys(_words(note[1]), note), **uses}
    for name in path:
        if name not in ("element", "key", "value") and (use := uses.get(name.lower())):
            what, text = use
            raise InvalidArgumentError(f"column {dotted(path)} cannot be {change}: {what} depends on it ({text})")


def _check_droppable(snapshot: Snapshot, path: Path, uses: _Uses) -> None:
    if len(path) == 1 and path[0] in snapshot.partition_columns:
        raise InvalidArgumentError(f"cannot drop column {dotted(path)}: it is a partition column")
    if any(_leads(path, tuple(clustering)) for clustering in snapshot.clustering_columns):
        raise InvalidArgumentError(f"cannot drop column {dotted(path)}: the table is clustered by it")
    _check_not_in(uses, snapshot, path, "dropped")


def _check_never_null(txn: Transaction, snapshot: Snapshot, path: Path) -> None:
    parents = [dotted(path[:length]) for length in range(1, len(path))]
    if not all(isinstance(find_path(snapshot.schema, path[:length])[1], StructType) for length in range(1, len(path))):
        raise InvalidArgumentError(f"column {dotted(path)} is within an array or a map, where nulls cannot be checked")
    sql = " AND ".join([*(f"{parent} IS NOT NULL" for parent in parents), f"{dotted(path)} IS NULL"])
    missing = parse_predicate(sql, snapshot.schema, now=txn.now)
    count = sum(match.matched for match in find_matches(txn, snapshot, missing))
    if count:
        raise ConstraintViolationError(f"column {dotted(path)} is null in {count} rows of the table")


# --- small parts -------------------------------------------------------------------------------------------------


def _whole_column(schema: StructType, column: str) -> StructField:
    path = named_path(arguments.text("column", column) or "", schema)
    return schema.field(path[0] if len(path) == 1 else column)


def _field_path(snapshot: Snapshot, column: str) -> Path:
    path, _ = find_path(snapshot.schema, named_path(column, snapshot.schema))
    _check_is_field(snapshot.schema, path, column)
    return path


def _check_is_field(schema: StructType, path: Path, column: str) -> None:
    parent = find_path(schema, path[:-1])[1] if len(path) > 1 else schema
    if not isinstance(parent, StructType):
        raise InvalidArgumentError(f"{column!r} is not a column or field: it names a part of an array or a map")


def _field(schema: StructType, path: Path) -> StructField:
    return _struct(find_path(schema, path[:-1])[1] if len(path) > 1 else schema).field(path[-1])


def _struct(data_type: DataType) -> StructType:
    if not isinstance(data_type, StructType):
        raise InternalError(f"the type {data_type} is no struct, and has no fields")
    return data_type


def _without(struct: StructType, names: Collection[str], last: str) -> StructType:
    """The struct without some fields, the ``last`` of which was named last."""
    left = tuple(item for item in struct if item.name not in names)
    if not left:
        only = StructType((struct.field(last),))
        raise InvalidArgumentError(f"cannot drop column {last!r}: it is the only one left in {only}")
    return StructType(left)


def _folded(path: Path) -> Path:
    return tuple(name.lower() for name in path)


def _leads(path: Path, to: Path) -> bool:
    return _folded(to[: len(path)]) == _folded(path)


def _with_stats_columns(snapshot: Snapshot, change: Any) -> dict[str, str]:
    """The configuration after a change of the columns with statistics.

    Args:
        snapshot: the table.
        change: returns the new path of a column, or None to remove it.
    """
    configuration = dict(snapshot.metadata.configuration or {})
    named = snapshot.properties.data_skipping_stats_columns
    if named:
        after = [change(split_path(name)) for name in named]
        configuration[_STATS_COLUMNS] = ",".join(dotted(path) for path in after if path is not None)
        if not configuration[_STATS_COLUMNS]:
            del configuration[_STATS_COLUMNS]
    return configuration


def _type_given(given: Any, column: str) -> DataType:
    if isinstance(given, str):
        return type_named(given)
    if isinstance(given, pa.DataType):
        return delta_type(given, column)
    if isinstance(given, DataType):
        return given
    raise InvalidArgumentError(f"a type must be an Arrow type or the name of a type, not {given!r}")


def _describe_change(txn: Transaction, schema: StructType, path: Path, *, position: str | None = None) -> None:
    """Describe the operation as Spark does."""
    parent, kind = find_path(schema, path[:-1])[1] if len(path) > 1 else schema, find_path(schema, path)[1]
    nullable, metadata = True, {}
    if isinstance(parent, StructType):
        item = parent.field(path[-1])
        nullable, metadata = item.nullable, dict(item.metadata)
    elif isinstance(parent, ArrayType):
        nullable = parent.contains_null
    elif isinstance(parent, MapType):
        nullable = path[-1] == "value" and parent.value_contains_null
    shown = str(kind) if not is_nested(kind) else type(kind).__name__.removesuffix("Type").lower()
    column = {"name": dotted(path), "type": shown, "nullable": nullable, "metadata": metadata}
    parameters = {"column": in_json(column)}
    txn.describe("CHANGE COLUMN", parameters if position is None else {**parameters, "position": position}, {})


def _fields_of(given: Any) -> list[StructField]:
    if isinstance(given, StructField):
        return [given]
    if isinstance(given, Schema):
        return given.fields
    if isinstance(given, pa.Schema):
        return list(declared_schema(given))
    if isinstance(given, pa.Field):
        return list(declared_schema(pa.schema([given])))
    if hasattr(given, "__arrow_c_schema__"):
        # A field or a schema of deltalake; both are exported as a field.
        return _exported(given)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, dict)):
        return [item for part in given for item in _fields_of(part)]
    raise InvalidArgumentError(f"a column to add must be a field of refdelta, pyarrow or deltalake, not {given!r}")


def _exported(given: Any) -> list[StructField]:
    field = pa.field(given)
    if field.name:
        return list(declared_schema(pa.schema([field])))
    return list(declared_schema(pa.schema(given)))


def _placed(schema: StructType, path: Sequence[str], item: StructField) -> StructField:
    """The new field within copies of its parent fields, for the merge with the schema."""
    head, *rest = path
    if not rest:
        return StructField(head, item.type, True, item.metadata)
    parent = schema.find(head)
    if parent is None:
        raise ColumnNotFoundError(head, schema.names)
    return StructField(parent.name, _within(parent.type, rest, item, head), parent.nullable)


def _within(parent: DataType, path: Sequence[str], item: StructField, where: str) -> DataType:
    step, rest = path[0], path[1:]
    match parent:
        case StructType():
            return StructType((_placed(parent, path, item),))
        case ArrayType() if step.lower() == "element" and rest:
            return ArrayType(_within(parent.element, rest, item, f"{where}.element"), parent.contains_null)
        case MapType() if step.lower() == "value" and rest:
            value = _within(parent.value, rest, item, f"{where}.value")
            return MapType(parent.key, value, parent.value_contains_null)
        case MapType() if step.lower() == "key" and rest:
            key = _within(parent.key, rest, item, f"{where}.key")
            return MapType(key, parent.value, parent.value_contains_null)
        case _:
            raise InvalidArgumentError(f"cannot add column {item.name!r}: {where} is {parent}, which has no fields")


def _type_name(data_type: DataType) -> str:
    """The name of a type in Spark's history: of nested types, the kind alone."""
    kinds = {StructType: "struct", ArrayType: "array", MapType: "map"}
    return kinds.get(type(data_type)) or str(data_type)


def set_default(txn: Transaction, snapshot: Snapshot, column: str, sql: str | None) -> None:
    """Stage the default of a column.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        column: the column's name.
        sql: an SQL expression without columns; None removes the default.

    Raises:
        ColumnNotFoundError: there is no such column; fields of structs cannot have a default.
        InvalidArgumentError: the column cannot hold the value, or is a generated or an identity column.
    """
    field = _whole_column(snapshot.schema, column)
    if sql is None and DEFAULT not in field.metadata:
        return
    for mark, kind in ((GENERATION, "generated"), (START, "an identity column")):
        if mark in field.metadata:
            raise InvalidArgumentError(f"column {field.name!r} is {kind}, and cannot have a default")
    schema = with_mark(snapshot.schema, field.name, DEFAULT, arguments.text("default", sql))
    changed = schema.field(field.name)
    if sql is not None:
        check_default(changed)
    shown = {"name": field.name, "type": str(field.type), "nullable": field.nullable, "metadata": changed.metadata}
    txn.describe("CHANGE COLUMN", {"column": in_json(shown)}, {})
    change_schema(txn, snapshot, schema, () if sql is None else ("allowColumnDefaults",))


# Keys of field metadata that engines use, and that other statements set: mapping, generated columns, defaults, ...
_MEANING = ("delta.", "parquet.", "current_default", "exists_default", "__char_varchar")


def set_column_metadata(txn: Transaction, snapshot: Snapshot, column: str, metadata: Mapping[str, Any]) -> None:
    """Stage entries of a column's metadata in the schema; other keys do not change.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        column: its name, or a path to a field of a struct; ``element``, ``key`` and ``value`` name the parts of arrays
            and maps.
        metadata: keys and values; None removes a key. Spark shows ``comment``.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: a key is reserved, or a value is not a string, a number or a boolean.
    """
    given = arguments.mapping("metadata", metadata)
    if not given:
        raise InvalidArgumentError("there is no metadata to set: metadata is empty")
    for key, value in given.items():
        if not isinstance(key, str) or key.lower().startswith(_MEANING):
            raise InvalidArgumentError(f"the metadata key {key!r} is reserved for engines; choose another key")
        if value is not None and not isinstance(value, (str, int, float, bool)):
            raise InvalidArgumentError(
                f"the value of the metadata key {key!r} must be a string, a number or a boolean, not {value!r:.80}"
            )
    path, _ = find_path(snapshot.schema, named_path(column, snapshot.schema))

    def described(holder: DataType, name: str) -> DataType:
        if not isinstance(holder, StructType):
            raise InvalidArgumentError(f"{column!r} is a part of an array or a map, which has no metadata")
        return with_field(holder, name, changed)

    def changed(item: StructField) -> StructField:
        after = {**item.metadata, **given}
        return replace(item, metadata={key: value for key, value in after.items() if value is not None})

    schema = edited(snapshot.schema, path, described)
    txn.describe("UPDATE FIELD METADATA", {"column": dotted(path), "metadata": in_json(dict(given))}, {})
    if schema != snapshot.schema:
        change_schema(txn, snapshot, schema)


def sync_identity(txn: Transaction, snapshot: Snapshot, column: str) -> None:
    """Stage the high watermark of an identity column: the furthest number of its rows. It never moves back.

    Args:
        txn: the transaction, which reads the whole table.
        snapshot: the snapshot that it reads.
        column: the column's name.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: it is not an identity column.
    """
    field = _whole_column(snapshot.schema, column)
    numbering = Numbering.of(field)
    if numbering is None:
        raise InvalidArgumentError(f"column {field.name!r} is not an identity column")
    txn.read_whole_table()
    furthest = pc.max if numbering.step > 0 else pc.min
    with plan_scan(snapshot, [field.name]).to_reader() as reader:
        found = [furthest(batch.column(0)).as_py() for batch in reader]
    given = [number for number in found if number is not None]
    if not given:
        return
    mark = numbering.at_or_behind(max(given) if numbering.step > 0 else min(given))
    metadata = with_marks(snapshot.metadata, {} if mark is None else {physical_name(field): mark})
    changed = parse_schema(metadata.schema_string).field(field.name)
    shown = {"name": field.name, "type": str(field.type), "nullable": field.nullable, "metadata": changed.metadata}
    txn.describe("CHANGE COLUMN", {"column": in_json(shown)}, {})
    change_table(txn, snapshot, metadata)
