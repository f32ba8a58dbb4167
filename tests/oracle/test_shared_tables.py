"""One table, two engines that take turns: each goes on from what the other left."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from spark_tables import tries

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int32()), ("s", pa.string())])
KEYS = ["a", "b c", None]


def some_rows(keys: list[str | None] = KEYS) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries(
        {"p": st.sampled_from(keys), "n": st.integers(0, 5), "s": st.sampled_from(["x", "y" * 40, None])}
    )
    return st.lists(row, min_size=1, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


ENGINES = st.sampled_from(["refdelta", "refdelta", "spark"])
STEPS = st.one_of(
    st.tuples(st.just("append"), ENGINES, some_rows()),
    st.tuples(st.just("overwrite"), ENGINES, some_rows()),
    st.tuples(st.just("replace a"), ENGINES, some_rows(["a"])),
    st.tuples(st.just("replace small"), ENGINES, some_rows().map(lambda t: t.filter(pc.field("n") < 3))),
    st.tuples(st.just("replace partitions"), ENGINES, some_rows()),
    st.tuples(st.just("delete"), st.just("spark"), st.sampled_from(["n = 1", "p = 'b c'", "s IS NULL AND n > 1"])),
    st.tuples(st.just("update"), st.just("spark"), st.just("n > 3")),
    st.tuples(st.just("optimize"), st.just("spark"), st.none()),
    st.tuples(st.just("checkpoint"), ENGINES, st.none()),
)

PREDICATES = {"replace a": "p = 'a'", "replace small": "n < 3"}


def run(spark: Any, path: Any, step: tuple[str, str, Any]) -> None:
    """Do one step with the engine that it names."""
    what, engine, data = step
    ours = engine == "refdelta"
    if what == "checkpoint":
        DeltaTable(path).create_checkpoint() if ours else oracle.checkpoint(spark, path)
    elif what == "delete":
        spark_tables.sql(spark, path, f"DELETE FROM {{t}} WHERE {data}")
    elif what == "update":
        spark_tables.sql(spark, path, f"UPDATE {{t}} SET s = 'changed' WHERE {data}")
    elif what == "optimize":
        spark_tables.sql(spark, path, "OPTIMIZE {t}")
    elif what == "append":
        write_deltalake(path, data, mode="append") if ours else spark_tables.write(spark, path, data)
    elif what == "replace partitions":
        if ours:
            write_deltalake(path, data, mode="overwrite", partition_overwrite="dynamic")
        else:
            spark_tables.write(spark, path, data, "overwrite", options={"partitionOverwriteMode": "dynamic"})
    elif ours:
        write_deltalake(path, data, mode="overwrite", predicate=PREDICATES.get(what))
    else:
        options = {"replaceWhere": PREDICATES[what]} if what in PREDICATES else {}
        spark_tables.write(spark, path, data, "overwrite", options=options)


def expected(before: pa.Table, step: tuple[str, str, Any]) -> pa.Table:
    """The definition: the table after a step, from the table before it."""
    what, _, data = step
    p, n, s = before["p"], before["n"], before["s"]
    if what in ("checkpoint", "optimize"):
        return before
    if what == "append":
        return pa.concat_tables([before, data])
    if what == "overwrite":
        return data
    if what == "update":
        return before.set_column(2, "s", pc.if_else(pc.fill_null(pc.greater(n, 3), False), "changed", s))
    if what == "replace partitions":
        gone = pc.is_in(p, value_set=data["p"])
        return pa.concat_tables([before.filter(pc.invert(gone)), data])
    matched = {
        "replace a": pc.equal(p, "a"),
        "replace small": pc.less(n, 3),
        "n = 1": pc.equal(n, 1),
        "p = 'b c'": pc.equal(p, "b c"),
        "s IS NULL AND n > 1": pc.and_kleene(pc.is_null(s), pc.greater(n, 1)),
    }[data if what == "delete" else what]
    kept = before.filter(pc.invert(pc.fill_null(matched, False)))
    return kept if what == "delete" else pa.concat_tables([kept, data])


@tries(6)
@given(first=some_rows(), steps=st.lists(STEPS, min_size=3, max_size=6), vectors=st.booleans())
def test_turns(spark, fresh_path, first, steps, vectors):
    path = fresh_path()
    properties = {"delta.enableDeletionVectors": "true"} if vectors else {}
    write_deltalake(path, first, mode="append", partition_by=["p"], configuration=properties)
    table, wanted = first, {0: first}
    for step in steps:
        run(spark, path, step)
        table = expected(table, step)
        version = DeltaTable(path).version()
        wanted[version] = table
        assert oracle.delta_log(spark, path).unsafeVolatileSnapshot().version() == version

    for version, want in wanted.items():
        assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)
    oracle.clear_cache(spark)
    assert_same_table(oracle.read_table(spark, path), table)


def test_a_checkpoint_over_one_of_spark_leaves_no_stale_companion(spark, tmp_path):
    """Hadoop keeps ``._last_checkpoint.crc`` beside ``_last_checkpoint`` on a local disk, and refuses the file when
    they differ: whoever replaces the one has to remove the other."""
    path = tmp_path / "t"
    data = pa.table({"n": [1]})
    spark_tables.write(spark, path, data)
    oracle.checkpoint(spark, path)
    write_deltalake(path, data, mode="append")
    DeltaTable(path).create_checkpoint()

    hint = path / "_delta_log" / "_last_checkpoint"
    hadoop_path = spark._jvm.org.apache.hadoop.fs.Path(str(hint))
    stream = hadoop_path.getFileSystem(spark._jsc.hadoopConfiguration()).open(hadoop_path)
    assert spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8") == hint.read_text()


def test_a_handle_follows_commits_of_spark(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"n": [1]}))
    table = DeltaTable(path)
    spark_tables.write(spark, path, pa.table({"n": [2]}))
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 1")
    table.update_incremental()

    assert table.version() == 2
    assert_same_table(table.to_pyarrow_table(), pa.table({"n": [2]}))
