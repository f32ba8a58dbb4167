"""Errors for names that do not exist: the similar name that they suggest, and the existing names that they list.

Tests of errors.
"""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.matrix import explain
from refdelta.errors import suggestion, unknown_name
from refdelta.racing.throughput import race
from refdelta.spark.options import READ, WRITE, check_names
from refdelta.table.protocol_choice import known_feature
from refdelta.table.types import type_named
from refdelta_storage import InvalidOptionError, open_store

ROWS = pa.table({"id": [1], "towns": ["Rome"], "place": [{"north": 1.0}]})


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    uri = tmp_path_factory.mktemp("t")
    write_deltalake(uri, ROWS, configuration={"mine.own": "yes"})
    table = DeltaTable(uri)
    table.alter.add_constraint({"positive": "id > 0"})
    table.alter.set_domain_metadata("my.app", "1")
    return table


OF_A_TABLE = {
    "a column that is read": (
        lambda t: t.to_pyarrow_table(columns=["town"]),
        "column 'town' does not exist in the table; did you mean 'towns'? columns: id, towns, place",
    ),
    "a column of a predicate": (lambda t: t.delete("TOWN = 'x'"), "did you mean 'towns'?"),
    "a column of a predicate, unlike any": (
        lambda t: t.delete("zzz = 1"),
        "column 'zzz' does not exist in the table; columns: id, towns, place",
    ),
    "a field of a struct": (lambda t: t.delete("place.nort = 1"), "did you mean 'place.north'? columns: place.north"),
    "a column of a MERGE": (
        lambda t: t.merge(ROWS, "t.id = s.idd", source_alias="s", target_alias="t").when_matched_delete().execute(),
        "column 'idd' does not exist in s; did you mean 'id'? columns: id, towns, place",
    ),
    "a column that is altered": (lambda t: t.alter.set_nullable("towsn"), "did you mean 'towns'?"),
    "a column of a Z-order": (lambda t: t.optimize.z_order(["ID_"]), "did you mean 'id'?"),
    "a function": (
        lambda t: t.delete("uppr(towns) = 'X'"),
        "the function (UPPR(towns)) is not supported here, at character 1; did you mean 'upper'?",
    ),
    "a unit of time": (lambda t: t.delete("trunc(current_date(), 'mnth') = current_date()"), "did you mean 'month'?"),
    "an operator of a filter": (
        lambda t: t.to_pyarrow_table(filters=[("id", "nto in", [1])]),
        "operator 'nto in' does not exist; did you mean 'not in'?",
    ),
    "a property that is set": (
        lambda t: t.alter.set_table_properties({"delta.checkpointIntervall": "3"}),
        "table property 'delta.checkpointIntervall' does not exist; did you mean 'delta.checkpointInterval'?",
    ),
    "a property's value": (
        lambda t: t.alter.set_table_properties({"delta.isolationLevel": "Serialisable"}),
        "must be one of Serializable, WriteSerializable; did you mean 'Serializable'?",
    ),
    "a property that is unset": (
        lambda t: t.alter.unset_table_properties(["Mine.Own"]),
        "property 'Mine.Own' does not exist in the table; did you mean 'mine.own'? properties: mine.own, ",
    ),
    "a constraint": (
        lambda t: t.alter.drop_constraint("postive"),
        "constraint 'postive' does not exist in the table; did you mean 'positive'? constraints: positive",
    ),
    "a domain": (
        lambda t: t.alter.set_domain_metadata("myapp", None),
        "metadata domain 'myapp' does not exist in the table; did you mean 'my.app'? metadata domains: my.app",
    ),
    "a feature": (
        lambda t: t.alter.add_feature("deletionVector"),
        "table feature 'deletionVector' does not exist; did you mean 'deletionVectors'?",
    ),
    "a mode": (lambda t: write_deltalake(t.table_uri, ROWS, mode="apend"), "not 'apend'; did you mean 'append'?"),
    "a mode of schemas": (
        lambda t: write_deltalake(t.table_uri, ROWS, mode="append", schema_mode="merged"),
        "not 'merged'; did you mean 'merge'?",
    ),
    "a type": (
        lambda t: t.alter.change_type("id", "bigintt"),
        "primitive type 'bigintt' does not exist; did you mean 'bigint'?",
    ),
}


@pytest.mark.parametrize("case", OF_A_TABLE)
def test_a_statement_with_a_misspelt_name_is_refused_with_the_right_one(table, case):
    call, said = OF_A_TABLE[case]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call(table)
    assert said in str(caught.value)
    assert DeltaTable(table.table_uri).version() == 2


OF_A_NAME = {
    "an isolation level": (
        lambda: IsolationLevel.parse("Serialisable"),
        "does not exist; did you mean 'Serializable'? isolation levels: WriteSerializable, Serializable",
    ),
    "an operation": (lambda: explain("Updat", "DELETE"), "did you mean 'UPDATE'? operations: INSERT, "),
    "a feature": (lambda: known_feature("ChangeDataFed"), "did you mean 'changeDataFeed'?"),
    "a type": (lambda: type_named("timestmp"), "did you mean 'timestamp'?"),
    "no type at all": (lambda: type_named(3), "primitive type 3 does not exist; primitive types: string, "),
    "an option of a read": (
        lambda: check_names({"versionasof": "1", "versionAs": "1"}, READ, "reads"),
        "option 'versionAs' does not exist in reads with the data source refdelta; did you mean 'versionAsOf'?",
    ),
    "an option of a write": (lambda: check_names({"mergeShema": "1"}, WRITE, "writes"), "did you mean 'mergeSchema'?"),
    "a mix of writers": (lambda: race("x", mix="append", writers=1, commits=1), "did you mean 'appends'?"),
}


@pytest.mark.parametrize("case", OF_A_NAME)
def test_a_misspelt_name_is_refused_with_the_right_one(case):
    call, said = OF_A_NAME[case]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("uri", "option", "said"),
    [
        ("/tmp/x", "fsnyc", "unknown option 'fsnyc' for the local file system; did you mean 'fsync'? options: fsync"),
        ("memory://x", "fsync", "unknown option 'fsync' for the store in memory; options: (none)"),
        ("s3://b/x", "AWS_ACESS_KEY_ID", "did you mean 'aws_access_key_id'?"),
        ("s3://b/x", "x" * 70, f"unknown option '{'x' * 70}' for s3; options: "),
    ],
)
def test_a_misspelt_option_of_a_store_is_refused_with_the_right_one(uri, option, said):
    with pytest.raises(InvalidOptionError) as caught:
        open_store(uri, {option: "x"})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("town", ["id", "towns"], "; did you mean 'towns'?"),
        ("TOWN", ["id", "Towns"], "; did you mean 'Towns'?"),
        ("town", ["id", "city"], ""),
        ("town", [], ""),
        ("", ["id"], ""),
        ("amount", ["s.amounts", "t.id"], "; did you mean 's.amounts'?"),
        (None, ["none"], ""),
        (("town",), ["town"], ""),
        ("ab\x1b", ["ab\x1b[31m"], ""),
        ("a" * 64, ["a" * 63], f"; did you mean {'a' * 63!r}?"),
        ("a" * 65, ["a" * 64], ""),
        ("a" * 64, ["a" * 65], ""),
        ("town", [*(f"x{i}" for i in range(999)), "towns"], "; did you mean 'towns'?"),
        ("town", [*(f"x{i}" for i in range(1_000)), "towns"], ""),
    ],
)
def test_the_similar_name(name, known, expected):
    assert suggestion(name, known) == expected


def test_many_names_are_not_listed_where_one_is_similar_and_counted_where_none_is():
    names = [f"c{number}" for number in range(30)]
    assert unknown_name("column", "c29x", names) == "column 'c29x' does not exist; did you mean 'c29'?"
    first = ", ".join(names[:20])
    assert unknown_name("column", "zzzz", names) == f"column 'zzzz' does not exist; columns: {first} and 10 more"
    assert unknown_name("property", "zzzz", [], kinds="properties", where="the table") == (
        "property 'zzzz' does not exist in the table; properties: (none)"
    )


def test_of_very_many_names_only_the_first_are_compared():
    names = iter([f"c{number}" for number in range(5_000)])
    suggestion("zzzz", names)
    assert next(names) == "c1000"


def test_an_impossible_state_asks_for_a_report():
    error = errors.InternalError("the plan has no file, but 3 rows")
    assert str(error) == (
        "the plan has no file, but 3 rows. This is a bug in refdelta: please report this message with its traceback"
    )
    assert isinstance(error, errors.DeltaError)


EVERY_SHAPE = [
    errors.InternalError("x"),
    errors.ColumnNotFoundError("town", ["towns"]),
    errors.UnsupportedFeatureError(["variantType"], "read", "because"),
    errors.DataFileError("broken", file="x.parquet"),
    errors.DataFileNotFoundError("gone", file="x.parquet"),
    errors.InvalidLogError("broken", file="_delta_log/0.json", line=3),
    errors.StreamStoppedError("rows were removed", 4, reload=False),
    errors.StoreError("no space"),
    errors.CommitOutcomeUnknownError("no reply", 3, "id", "s3://b/x"),
    errors.ConcurrentAppendException("files", errors.ConflictDetails("append", 3, "WRITE", ("x",), "try again")),
]


@pytest.mark.parametrize("error", EVERY_SHAPE, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_boundary_as_it_is(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
