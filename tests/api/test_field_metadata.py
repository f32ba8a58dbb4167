"""The metadata of a schema's fields: kept, honoured or refused by name, on every path by which a schema comes in."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta.compat.deltalake as compat
from refdelta import AddAction, DeltaTable, Schema, convert_to_deltalake, errors, write_deltalake

GENERATED = {"delta.generationExpression": "id * 2"}
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "new > 0"}})}
NUMBERED = {
    "delta.identity.start": "5",
    "delta.identity.step": "10",
    "delta.identity.allowExplicitInsert": "true",
}
DEFAULT = {"CURRENT_DEFAULT": "7"}
PLAIN = {"comment": "the new one", "owner": "Ada"}
OF_FILES = {"PARQUET:field_id": "3", "ARROW:extension:name": "none", "_PL_ENUM_VALUES2": "1;a"}


def rows(metadata, new=(2, 4), ids=(1, 2)):
    schema = pa.schema([("id", "int64"), pa.field("new", pa.int64(), metadata=metadata)])
    return pa.table({"id": list(ids), "new": list(new)}, schema=schema)


def old_table(path):
    write_deltalake(path, pa.table({"id": [1]}))
    return DeltaTable(path)


def created(path, data):
    DeltaTable.create(path, data.schema)
    write_deltalake(path, data, mode="append")


def replaced(path, data):
    old_table(path)
    DeltaTable.create(path, data.schema, mode="overwrite")
    write_deltalake(path, data, mode="append")


def written(path, data):
    write_deltalake(path, data)


def overwritten(path, data):
    write_deltalake(old_table(path), data, mode="overwrite", schema_mode="overwrite")


def of_schema(path, data):
    DeltaTable.create(path, Schema.from_json(Schema.from_arrow(data.schema).to_json()))
    write_deltalake(path, data, mode="append")


def prepared(path, data):
    Path(path).mkdir()
    file = Path(path, "f.parquet")
    pq.write_table(data.replace_schema_metadata(None), file)
    action = AddAction(file.name, file.stat().st_size, {}, 1_700_000_000_000)
    write_deltalake(path, data.slice(0, 0))
    # The schema is compared only: the table has its own metadata.
    other = pa.schema([data.schema.field("id"), pa.field("new", "int64", metadata=GENERATED)])
    DeltaTable(path).create_write_transaction([action], "overwrite", other)


def merged(path, data):
    write_deltalake(old_table(path), data, mode="append", schema_mode="merge")


def upserted(path, data):
    work = old_table(path).merge(data, "t.id = s.id", merge_schema=True)
    work.when_matched_update_all().when_not_matched_insert_all().execute()


def inserted(path, data):
    work = old_table(path).merge(data, "t.id = s.id", merge_schema=True)
    work.when_not_matched_insert({"id": "s.id", "new": "s.new"}).execute()


def added(path, data):
    old_table(path).alter.add_columns(data.schema.field("new"))


WHOLE = [created, replaced, written, overwritten, of_schema]
GROWN = [merged, upserted, inserted, added]


def metadata_of(path, name="new"):
    return dict(DeltaTable(path).schema().struct.field(name).metadata)


@pytest.mark.sample(check=2)
@pytest.mark.parametrize("make", [*WHOLE, prepared, *GROWN])
def test_comments_and_free_keys_are_kept_and_those_of_files_are_not(make, tmp_path):
    make(tmp_path / "t", rows(PLAIN | OF_FILES))
    assert metadata_of(tmp_path / "t") == PLAIN
    known = deltalake.DeltaTable(str(tmp_path / "t")).schema().fields
    assert [field.metadata for field in known] == [{}, PLAIN]


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("make", WHOLE)
def test_declarations_of_a_new_schema_hold_for_its_rows(make, tmp_path):
    make(tmp_path / "g", rows(GENERATED | PLAIN))
    assert metadata_of(tmp_path / "g") == GENERATED | PLAIN
    for path, wrong, what in (("g", GENERATED, "generated column new"), ("i", INVARIANT, "invariant of column new")):
        if path == "i":
            make(tmp_path / "i", rows(INVARIANT))
        with pytest.raises(errors.ConstraintViolationError, match=f"the .*{what}"):
            write_deltalake(tmp_path / path, rows({}, new=[2, -4]), mode="append")
        with pytest.raises(errors.ConstraintViolationError, match=what):
            make(tmp_path / f"{path}2", rows(wrong, new=[2, -4]))
    write_deltalake(tmp_path / "g", pa.table({"id": [9]}), mode="append")
    assert DeltaTable(tmp_path / "g").to_pyarrow_table(filters="id = 9").to_pylist() == [{"id": 9, "new": 18}]


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("make", WHOLE)
def test_defaults_and_numbers_of_a_new_schema_are_given(make, tmp_path):
    for name, metadata, expected in (("d", DEFAULT, 7), ("n", NUMBERED, 5)):
        make(tmp_path / name, rows(metadata))
        write_deltalake(tmp_path / name, pa.table({"id": [9]}), mode="append")
        assert DeltaTable(tmp_path / name).to_pyarrow_table(filters="id = 9")["new"].to_pylist() == [expected]
    always = NUMBERED | {"delta.identity.allowExplicitInsert": "false"}
    with pytest.raises(errors.ConstraintViolationError, match="'new' is an identity column: the table gives its"):
        make(tmp_path / "a", rows(always))


@pytest.mark.sample(check=4)
@pytest.mark.parametrize("metadata", [GENERATED, INVARIANT, DEFAULT, NUMBERED])
@pytest.mark.parametrize("make", GROWN)
def test_a_column_that_is_added_to_rows_declares_nothing(make, metadata, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match=f"cannot add column 'new' with .*{min(metadata)}"):
        make(tmp_path / "t", rows(metadata))
    assert DeltaTable(tmp_path / "t").version() == 0


WRONG = {
    "delta.columnMapping.id": "which each table gives its own columns",
    "delta.columnMapping.physicalName": "which each table gives its own columns",
    "delta.typeChanges": "which each table gives its own columns",
    "parquet.field.id": "which each table gives its own columns",
    "delta.generatedExpression": "did you mean 'delta.generationExpression'",
    "delta.unheard": "'delta.unheard' does not exist",
    "__COLLATIONS": "'__COLLATIONS' does not exist",
    "delta.identity.start": "must be a whole number, not 'x'",
    "delta.identity.allowExplicitInsert": "must be true or false, not 'x'",
}


@pytest.mark.sample(check=8)
@pytest.mark.parametrize("key", WRONG)
@pytest.mark.parametrize("make", [created, overwritten, merged, upserted, added])
def test_what_cannot_be_kept_is_refused_by_name(make, key, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match=f"^column 'new'.*{key}.*") as caught:
        make(tmp_path / "t", rows({key: "x"}))
    assert WRONG[key] in str(caught.value)
    assert make is created or DeltaTable(tmp_path / "t").version() == 0


def test_half_a_declaration_and_bytes_are_refused(tmp_path):
    for metadata, message in (
        ({"delta.identity.start": "1"}, "column 'new' comes with delta.identity.start; an identity column needs"),
        ({"delta.invariants": "new > 0"}, "the invariant of column new is not valid"),
        ({b"\xff": b"x"}, "column 'new': the metadata b'\\\\xff' of the field is not UTF-8"),
        (GENERATED | DEFAULT, "column 'new' has a value from"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            write_deltalake(tmp_path / "t", rows(metadata))
    write_deltalake(tmp_path / "t", rows({b"PARQUET:\xff": b"x"}))
    assert metadata_of(tmp_path / "t") == {}


def test_an_append_takes_the_declarations_of_the_table(tmp_path):
    write_deltalake(tmp_path / "t", rows(PLAIN))
    for mode in ("append", "overwrite"):
        write_deltalake(tmp_path / "t", rows(GENERATED | {"comment": "other"}, new=[0, 0]), mode=mode)
    assert metadata_of(tmp_path / "t") == PLAIN


@pytest.mark.parametrize("make", [merged, upserted])
def test_columns_of_both_keep_what_the_table_declares(make, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(GENERATED | PLAIN))
    grown = rows(GENERATED | {"comment": "other"}).append_column(pa.field("third", "int64", metadata=PLAIN), [[1, 2]])

    def again(data):
        if make is merged:
            write_deltalake(path, data, mode="append", schema_mode="merge")
        else:
            work = DeltaTable(path).merge(data, "t.id = s.id", merge_schema=True)
            work.when_matched_update_all().execute()

    again(grown)
    assert (metadata_of(path), metadata_of(path, "third")) == (GENERATED | PLAIN, PLAIN)
    if make is merged:
        with pytest.raises(errors.InvalidArgumentError, match=r"'new' comes with delta.generationExpression='id \* 3'"):
            again(rows({"delta.generationExpression": "id * 3"}))


def nested(inner, element=None):
    struct = pa.struct([pa.field("a", "int64", metadata=inner)])
    listed = pa.list_(pa.field("element", struct, metadata=element))
    return pa.table(
        {"id": [1], "s": [{"a": 1}], "l": [[{"a": 1}]]},
        schema=pa.schema([("id", "int64"), ("s", struct), ("l", listed)]),
    )


def test_fields_of_structs_have_metadata_and_elements_have_none(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, nested(PLAIN | OF_FILES, OF_FILES))
    struct = DeltaTable(path).schema().struct
    assert struct.field("s").type.field("a").metadata == struct.field("l").type.element.field("a").metadata == PLAIN
    write_deltalake(path, nested({}), mode="append")
    DeltaTable(path).merge(nested({}), "t.id = s.id").when_not_matched_insert_all().execute()
    DeltaTable(path).update({"s": "named_struct('a', 5)"})
    assert DeltaTable(path).schema().struct == struct
    with pytest.raises(errors.InvalidArgumentError, match=r"'l.element' comes with comment, but parts of arrays"):
        write_deltalake(tmp_path / "e", nested({}, PLAIN))
    with pytest.raises(errors.InvalidArgumentError, match="a part of column 's' is declared as generated"):
        write_deltalake(tmp_path / "e", nested(GENERATED))
    more = pa.struct([("a", "int64"), pa.field("new", "int64", metadata=DEFAULT)])
    data = pa.table({"id": [1], "s": pa.array([{"a": 1, "new": 2}], more)})
    with pytest.raises(errors.InvalidArgumentError, match=r"cannot add column 's.new' with CURRENT_DEFAULT"):
        write_deltalake(path, data, mode="append", schema_mode="merge")
    write_deltalake(tmp_path / "i", nested({"delta.invariants": '{"expression": {"expression": "s.a > 0"}}'}).drop("l"))
    with pytest.raises(errors.ConstraintViolationError, match=r"the invariant of column s.a \(s.a > 0\)"):
        write_deltalake(tmp_path / "i", pa.table({"id": [1], "s": [{"a": 0}]}), mode="append")


def test_a_schema_keeps_its_metadata_through_arrow_and_leaves_what_belongs_to_its_table(tmp_path):
    mapped = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    all_of_it = rows(NUMBERED | PLAIN).append_column(pa.field("n", "int32", metadata=PLAIN), pa.array([1, 2], "int32"))
    write_deltalake(tmp_path / "t", all_of_it, configuration=mapped)
    DeltaTable(tmp_path / "t").alter.change_type("n", "long")
    schema = DeltaTable(tmp_path / "t").schema()
    assert {"delta.typeChanges", "delta.columnMapping.id"} < schema.struct.field("n").metadata.keys()
    for number, given in enumerate((schema, schema.to_arrow(), pa.schema(schema))):
        copy = DeltaTable.create(tmp_path / str(number), given).schema().struct
        assert dict(copy.field("n").metadata) == PLAIN
        assert copy.field("new").metadata["delta.identity.start"] == 5
    plain = Schema.from_arrow(nested(PLAIN).schema)
    assert Schema.from_arrow(plain) == plain


def test_the_categories_of_polars_are_not_metadata_of_a_table(tmp_path):
    frame = pl.DataFrame({"c": pl.Series(["a"], dtype=pl.Categorical), "e": pl.Series(["a"], dtype=pl.Enum(["a"]))})
    write_deltalake(tmp_path / "t", frame)
    assert metadata_of(tmp_path / "t", "c") == metadata_of(tmp_path / "t", "e") == {}


def test_a_conversion_keeps_comments_and_leaves_what_describes_another_table(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    mapped = {"delta.columnMapping.id": "3", "PARQUET:field_id": "3"}
    pq.write_table(rows(PLAIN | GENERATED | mapped, new=[7, 8]), folder / "f.parquet")
    convert_to_deltalake(folder)
    assert metadata_of(folder) == PLAIN
    assert DeltaTable(folder).to_pyarrow_table()["new"].to_pylist() == [7, 8]


def test_schemas_of_the_compat_module_keep_metadata_through_arrow():
    given = compat.Schema([compat.Field("a", "long", metadata={"comment": "c", "delta.identity.start": 1})])
    again = compat.Schema.from_arrow(pa.schema(given))
    assert again == given
    assert pa.schema(given).field("a").metadata == {b"comment": b"c", b"delta.identity.start": b"1"}
    assert pa.field(given.fields[0]).metadata == pa.schema(given).field("a").metadata
