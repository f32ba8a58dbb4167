"""``refdelta create``, ``clone`` and ``alter``: what they make, what they say, and what they refuse.

Tests of cli.defining.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.cli.app import app
from refdelta.cli.defining import _STATEMENTS


def columns(path):
    return {field.name: str(field.type) for field in DeltaTable(path).schema().to_arrow()}


def test_create_makes_a_table_without_rows(cli, tmp_path):
    path = tmp_path / "t"
    how = ("--column", "id=bigint", "--column", "price=decimal(12,2)", "--column", "day=date", "--not-null", "ID,day")
    told = cli("create", path, *how, "--partition-by", "day", "--property", "delta.appendOnly=true", "--name", "orders")
    assert told.out == "version 0: 3 columns\n"
    table = DeltaTable(path)
    assert columns(path) == {"id": "int64", "price": "decimal128(12, 2)", "day": "date32[day]"}
    assert [field.nullable for field in table.schema()] == [False, True, False]
    metadata = table.metadata()
    assert (metadata.partition_columns, metadata.name) == (["day"], "orders")
    assert metadata.configuration["delta.appendOnly"] == "true"
    assert table.count() == 0


def test_create_like_a_file_or_a_table_and_with_declarations(cli, table, tmp_path):
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us", "UTC"))}), tmp_path / "a.parquet")
    path = tmp_path / "t"
    more = ("--column", "up=string", "--column", "n=long", "--column", "twice=long")
    made = ("--identity", "n", "--default", "up='x'", "--generated", "twice=id * 2", "--message", "by hand")
    told = cli("create", path, "--like", tmp_path / "a.parquet", *more, *made, "--json").json
    assert told == {"version": 0, "location": DeltaTable(path).table_uri, "columns": ["id", "at", "up", "n", "twice"]}
    write_deltalake(path, pa.table({"id": [3], "at": pa.array([1], pa.timestamp("us", "UTC"))}), mode="append")
    (row,) = DeltaTable(path).to_pyarrow_table(columns=["up", "n", "twice"]).to_pylist()
    assert row == {"up": "x", "n": 1, "twice": 6}
    assert DeltaTable(path).history()[-1]["userMetadata"] == "by hand"
    assert cli("create", tmp_path / "u", "--like", table).status == 0
    assert columns(tmp_path / "u") == columns(table)
    assert DeltaTable(tmp_path / "u").count() == 0


def test_create_where_there_is_a_table(cli, fails, table):
    assert "there is a table" in fails("create", table, "--column", "a=long")
    assert cli("create", table, "--column", "a=long", "--mode", "ignore").status == 0
    assert DeltaTable(table).version() == 2
    assert cli("create", table, "--column", "a=long", "--mode", "overwrite").out.startswith("version 3: 1 column")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "a table needs columns: say --column NAME=TYPE"),
        (("--column", "a"), "'a' is not name=type"),
        (("--column", "a=long", "--column", "a=int"), "a is given twice"),
        (("--column", "a=strng"), "did you mean 'string'"),
        (("--column", "town=string", "--not-null", "twn"), "did you mean 'town'"),
        (("--like", "none.parquet"), "no such file"),
        (("--column", "a=long", "--partition-by", "b"), "'b'"),
    ],
)
def test_create_says_what_is_wrong(fails, tmp_path, arguments, words):
    assert words in fails("create", tmp_path / "t", *arguments)
    assert not DeltaTable.is_deltatable(tmp_path / "t")


def test_clone_refers_to_the_files(cli, fails, table, tmp_path):
    told = cli("clone", table, tmp_path / "c", "--version", 1)
    assert told.out == f"version 0: 4 files of {table}; read it with --outside {table}\n"
    assert len(cli("read", tmp_path / "c", "--outside", table, "--json").json) == 4
    found = cli("clone", table, tmp_path / "d", "--message", "trial", "--json").json
    assert (found["version"], found["num_files"]) == (0, 3)
    assert DeltaTable(tmp_path / "d", outside=[table]).history()[0]["userMetadata"] == "trial"
    assert "there is a table" in fails("clone", table, tmp_path / "c")
    assert "no version 9" in fails("clone", table, tmp_path / "e", "--version", 9)


ALTERED = [
    (("--set-property", "delta.appendOnly=true", "--set-property", "owner=Ada"), lambda t: t.metadata().configuration),
    (("--unset-property", "owner"), lambda t: "owner" not in t.metadata().configuration),
    (("--set-property", "delta.columnMapping.mode=name"), lambda t: t.protocol().min_reader_version >= 2),
    (("--add-column", "town=string", "--add-column", "n=int"), lambda t: t.schema().names[-2:] == ["town", "n"]),
    (("--rename-column", "town=city"), lambda t: "city" in t.schema().names),
    (("--comment", "city=where it is"), lambda t: t.schema().struct.field("city").metadata["comment"] == "where it is"),
    (("--move-after", "id=city"), lambda t: t.schema().names[:2] == ["city", "id"]),
    (("--first", "id"), lambda t: t.schema().names[0] == "id"),
    (("--drop-column", "city"), lambda t: "city" not in t.schema().names),
    (("--set-property", "delta.enableTypeWidening=true"), lambda t: True),
    (("--change-type", "n=long"), lambda t: str(t.schema().to_arrow().field("n").type) == "int64"),
    (("--not-null", "id"), lambda t: not t.schema().struct.field("id").nullable),
    (("--nullable", "id"), lambda t: t.schema().struct.field("id").nullable),
    (("--add-constraint", "small=id < 100"), lambda t: "delta.constraints.small" in t.metadata().configuration),
    (("--drop-constraint", "small"), lambda t: "delta.constraints.small" not in t.metadata().configuration),
    (
        ("--add-feature", "allowColumnDefaults,deletionVectors"),
        lambda t: "deletionVectors" in t.protocol().writer_features,
    ),
    (("--set-default", "n=7"), lambda t: t.schema().struct.field("n").metadata["CURRENT_DEFAULT"] == "7"),
    (("--drop-default", "n"), lambda t: "CURRENT_DEFAULT" not in t.schema().struct.field("n").metadata),
    (("--name", "ledger", "--message", "by hand"), lambda t: t.metadata().name == "ledger"),
    (("--description", "what was paid"), lambda t: t.metadata().description == "what was paid"),
    (("--cluster-by", "id"), lambda t: t.detail()["clustering_columns"] == ["id"]),
    (("--drop-feature", "deletionVectors"), lambda t: "deletionVectors" not in t.protocol().reader_features),
]


@pytest.mark.tier("test")
def test_alter_runs_each_statement(cli, tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2]}))
    for arguments, holds in ALTERED:
        result = cli("alter", tmp_path, *arguments)
        assert (result.status, result.err) == (0, ""), arguments
        assert result.out.startswith("version "), arguments
        assert holds(DeltaTable(tmp_path)), arguments
    used = {arguments[0].removeprefix("--").replace("-", "_") for arguments, _ in ALTERED}
    assert used == set(_STATEMENTS)
    assert cli("alter", tmp_path, "--name", "ledger").out == "the table is so already: nothing was written\n"
    assert "by hand" in [commit.get("userMetadata") for commit in DeltaTable(tmp_path).history()]


def test_alter_in_short(cli, table):
    assert cli("alter", table, "--add-column", "town=string", "--json").json["version"] == 3
    assert cli("alter", table, "--name", "ledger").out.startswith("version 4, ")


def test_each_option_of_alter_is_a_statement():
    named = {parameter.name for parameter in app.commands["alter"].params}
    where = {"table", "storage_options", "outside", "catalog", "locations", "catalog_timeout"}
    others = where | {"as_json", "isolation", "message"}
    assert named - others == {*_STATEMENTS, "allow_protocol_versions_increase", "truncate_history"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what to change"),
        (("--name", "a", "--description", "b"), "--name and --description are changes of their own"),
        (("--rename-column", "a=b", "--rename-column", "c=d"), "--rename-column is a change of its own each time"),
        (("--name", "a", "--truncate-history"), "--truncate-history goes with --drop-feature"),
        (("--set-property", "delta.appendOny=true"), "did you mean 'delta.appendOnly'"),
        (("--drop-column", "id"), "delta.columnMapping.mode"),
        (("--add-feature", "deletionVector"), "did you mean 'deletionVectors'"),
        (("--change-type", "id=long long"), "long long"),
    ],
)
def test_alter_says_what_is_wrong(fails, table, arguments, words):
    assert words in fails("alter", table, *arguments)
    assert DeltaTable(table).version() == 2
