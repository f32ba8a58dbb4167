"""``import refdelta`` stays light: what only some users need is imported where it is used."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import refdelta

ROOT = Path(__file__).parents[2]
HEAVY = {
    "pyspark",
    "py4j",
    "delta",
    "s3fs",
    "adlfs",
    "gcsfs",
    "google",
    "obstore",
    "aiohttp",
    "botocore",
    "azure",
    "pandas",
    "duckdb",
    "polars",
    "deltalake",
    "rich",
    "click",
}


def modules_after(statement):
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    return {*loaded, *(name.partition(".")[0] for name in loaded)}


def test_importing_refdelta_imports_nothing_heavy():
    loaded = modules_after("import refdelta")
    assert loaded & (HEAVY | {"pyarrow", "numpy", "msgspec", "sqlglot", "asyncio", "ssl"}) == set()


def test_importing_the_table_imports_no_arrow_and_no_engine():
    code = "import json, sys; from refdelta import DeltaTable; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    third = HEAVY | {"pyarrow", "numpy", "msgspec", "sqlglot", "fsspec", "pyroaring", "asyncio", "ssl"}
    assert {name.partition(".")[0] for name in loaded} & third == set()
    others = (
        "arrow",
        "core.commit",
        "core.conflicts",
        "core.log",
        "engine",
        "expressions",
        "operations",
        "transaction",
    )
    assert not [name for name in loaded if name.startswith(tuple(f"refdelta.{other}" for other in others))]


@pytest.mark.tier("test")
def test_every_public_name_is_there_when_it_is_asked_for():
    statement = (
        "import refdelta, refdelta_storage; "
        "assert all(getattr(module, name) and name in dir(module) "
        "for module in (refdelta, refdelta_storage) for name in module.__all__); "
        "assert not hasattr(refdelta, 'nothing') and not hasattr(refdelta_storage, 'nothing')"
    )
    assert modules_after(statement) & HEAVY == set()


@pytest.mark.tier("test")
def test_who_only_reads_a_table_waits_for_no_sql_and_no_network(tmp_path):
    refdelta.write_deltalake(tmp_path, pa.table({"a": [1, 2]}))
    statement = f"import refdelta; assert refdelta.DeltaTable({str(tmp_path)!r}).to_pyarrow_table().num_rows == 2"
    writing = {"refdelta.core.commit", "refdelta.transaction.driver", "refdelta.operations.write"}
    assert modules_after(statement) & {"sqlglot", "asyncio", "fsspec", "pyarrow.dataset", *writing} == set()


@pytest.mark.sample(test=3)
@pytest.mark.tier("test")
@pytest.mark.parametrize(
    "work",
    [
        "t.count()",
        "t.to_pyarrow_table()",
        "t.get_add_actions()",
        "t.file_uris()",
        "t.history()",
        "t.detail()",
        "append",
    ],
)
def test_ordinary_work_loads_no_pandas_and_no_functions_of_sql(tmp_path, work):
    """pyarrow imports pandas, where it is installed, for the first Python value that it converts."""
    data = pa.table({"x": [1, 2], "p": ["a", "b"], "d": [1, 2]})
    with pa.ipc.new_file(tmp_path / "rows", data.schema) as sink:
        sink.write_table(data)
    refdelta.write_deltalake(tmp_path / "t", data, partition_by=["p", "d"])
    if work == "append":
        work = (
            f"import pyarrow as pa; rows = pa.ipc.open_file({str(tmp_path / 'rows')!r}).read_all(); "
            "refdelta.write_deltalake(t, rows, mode='append')"
        )
    loaded = modules_after(f"import refdelta; t = refdelta.DeltaTable({str(tmp_path / 't')!r}); {work}")
    assert not loaded & {"pandas", "sqlglot", "refdelta.expressions.functions", "refdelta.engine.scan.filters"}


@pytest.mark.sample(test=3)
@pytest.mark.tier("test")
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(
    "work",
    [
        "t.to_pyarrow_table()",
        "t.to_pyarrow_table(filters='n = 3 OR n IS NULL')",
        "t.to_pyarrow_table(filters='n IN (3, 4) AND NOT p <=> 3')",
        "t.to_pyarrow_table(filters=[('day', '<', '2020-01-05')])",
        "t.to_pyarrow_table(filters=\"at > '1969-12-31 00:00:00'\")",
        "t.to_pyarrow_table(filters='x > 1.5')",
        "t.to_pyarrow_table(filters='price IN (0.5, 1.5) OR price > 11')",
        "t.to_pyarrow_table(filters=\"name LIKE 'a%'\")",
        "t.delete('n = 3')",
        "t.delete('p = 0')",
        "t.update({'n': 'n + 1'}, predicate='n = 3')",
        "t.update({'name': \"'x'\"}, predicate='p = 0')",
    ],
)
def test_who_filters_rows_waits_for_no_pandas(tmp_path, work, vectors):
    kept = pa.table({"n": range(50), "p": [n % 2 for n in range(50)], "name": [f"a{n}" for n in range(50)]})
    days = pa.array(range(18260, 18310), pa.int32()).cast(pa.date32())
    kept = kept.append_column("day", days).append_column("x", pa.array([n / 4 for n in range(50)]))
    kept = kept.append_column("price", kept["x"].cast(pa.decimal128(10, 2)))
    kept = kept.append_column("at", pa.array(range(50), pa.int64()).cast(pa.timestamp("us", "UTC")))
    features = {"delta.enableDeletionVectors": str(vectors).lower()}
    for _ in range(2):
        refdelta.write_deltalake(tmp_path, kept, mode="append", partition_by=["p"], configuration=features)
    refdelta.DeltaTable(tmp_path).delete("n = 7")
    loaded = modules_after(f"import refdelta; t = refdelta.DeltaTable({str(tmp_path)!r}); {work}")
    assert "pandas" not in loaded


def test_importing_the_stores_imports_nothing_of_delta_and_no_cloud():
    loaded = modules_after("import refdelta_storage")
    assert loaded & (HEAVY | {"refdelta", "pyarrow"}) == set()


@pytest.mark.tier("test")
def test_importing_what_runs_on_spark_needs_no_spark():
    assert modules_after("import refdelta.spark") & HEAVY == set()


@pytest.mark.tier("test")
def test_writing_and_reading_a_local_table_imports_nothing_heavy(tmp_path):
    statement = (
        "import pyarrow as pa, refdelta; "
        f"refdelta.write_deltalake({str(tmp_path / 't')!r}, pa.table({{'a': [1, 2]}})); "
        f"assert refdelta.DeltaTable({str(tmp_path / 't')!r}).to_pyarrow_table(filters='a > 1').num_rows == 1"
    )
    # pyarrow itself looks for pandas as soon as it is given a Python list.
    assert modules_after(statement) & HEAVY <= {"pandas"}


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=3)
@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("s3fs", "refdelta.DeltaTable('s3://bucket/t')", "s3"),
        ("adlfs", "refdelta.DeltaTable('abfss://box@account.dfs.core.windows.net/t')", "adls"),
        ("gcsfs", "refdelta.DeltaTable('gs://bucket/t')", "gcs"),
        ("obstore", "refdelta.DeltaTable('s3://b/t', storage_options={'client': 'obstore'})", "obstore"),
        ("pandas", "refdelta.DeltaTable(sys.argv[1]).to_pandas()", "pandas"),
        ("pyspark", "import refdelta.spark; refdelta.spark.register(None)", "spark"),
        ("sqlalchemy", "from refdelta.catalog import SqlCatalog; SqlCatalog('sqlite://')", "catalog"),
        ("opentelemetry", "refdelta.instrument()", "opentelemetry"),
        ("datafusion", "from refdelta.compat.deltalake import QueryBuilder; QueryBuilder()", "datafusion"),
        ("click", "import refdelta.cli; sys.exit(refdelta.cli.main())", "cli"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(tmp_path, package, call, extra):
    refdelta.write_deltalake(tmp_path, pa.table({"a": [1]}))
    code = f"import sys; sys.modules[{package!r}] = sys.modules['obstore'] = None; import refdelta; {call}"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    told = done.stderr.splitlines()[-1]
    assert f"pip install 'refdelta[{extra}]'" in told
    assert package in told.partition("pip install")[0]


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    own = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    lists = [own, *project["project"]["optional-dependencies"].values()]
    lists.append(project["build-system"]["requires"])
    wanted = {re.match(r"[\w.-]+", item).group().lower().replace("_", "-") for some in lists for item in some}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), "plain name==version lines only"
    assert wanted - {"refdelta"} <= {line.partition("==")[0] for line in lines}


def test_dir_shows_what_is_public():
    assert dir(refdelta) == sorted(refdelta.__all__)
    assert "Any" not in dir(refdelta)
    assert not hasattr(refdelta, "import_module")


@pytest.mark.tier("test")
def test_an_append_imports_no_expressions_and_nothing_of_other_statements(tmp_path):
    rows = tmp_path / "rows"
    data = pa.table({"x": [1]})
    with pa.ipc.new_file(rows, data.schema) as sink:
        sink.write_table(data)
    refdelta.write_deltalake(tmp_path / "t", data)
    loaded = modules_after(
        f"import pyarrow as pa, refdelta; rows = pa.ipc.open_file({str(rows)!r}).read_all(); "
        f"refdelta.write_deltalake({str(tmp_path / 't')!r}, rows, mode='append')"
    )
    assert refdelta.DeltaTable(tmp_path / "t").count() == 2
    assert not loaded & {
        "sqlglot",
        "refdelta.expressions.functions",
        "refdelta.expressions.predicate",
        "refdelta.expressions.evaluate",
        "refdelta.expressions.sql",
        "refdelta.engine.log.checkpoint_write",
        "refdelta.engine.scan.reader",
        "refdelta.engine.scan.scan",
        "refdelta.operations.alter.columns",
        "refdelta.operations.shared.rewrite",
        "refdelta.operations.layout.compaction",
    }


def test_a_missing_core_is_said_with_the_way_to_get_it():
    code = "import sys; sys.modules['refdelta.core'] = None; from refdelta import DeltaTable"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        "ImportError: refdelta.core is missing; say: pip install --force-reinstall --no-deps refdelta-core"
    )
