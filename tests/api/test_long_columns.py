"""Lists of files with more bytes of strings than one array of Arrow can hold.

The limit is lowered, for the whole engine, to less than a column of the list has: so a statement that puts such a
column into one array fails, and one that goes through the list in pieces gives the same result as without a limit.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import handmade
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.arrow import arrays
from refdelta.errors import NotEnoughMemoryError

FILES = 40
LIMIT = 2_000
"""Bytes of strings in one array: more than an entry of the list has, and less than 40 of any of its columns."""
PAD = "x" * 100


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A table whose files have long paths, partition values, tags, statistics and places of deletion vectors."""
    folder = tmp_path_factory.mktemp("long") / "table"
    rows = pa.table(
        {"p": [f"{n % 5}{PAD}" for n in range(FILES)], "a": range(FILES), "b": [n * 10 for n in range(FILES)]}
    )
    vectors = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "classic"}
    write_deltalake(folder, rows.slice(0, 1), partition_by=["p"], configuration=vectors)
    adds = []
    for n in range(1, FILES):
        path = f"{PAD}{n}.parquet"
        pq.write_table(rows.slice(n, 1).drop_columns(["p"]), folder / path)
        bounds = {"a": n, "b": n * 10}
        stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"a": 0, "b": 0}, "pad": PAD}
        adds.append(handmade.add(path, size=(folder / path).stat().st_size, stats=json.dumps(stats),
                                 partitionValues={"p": f"{n % 5}{PAD}"}, tags={"note": PAD}))  # fmt: skip
    handmade.write_commit(folder, 1, *adds)
    assert DeltaTable(folder).delete("a = 7 OR a = 8")["num_deleted_rows"] == 2
    return folder


def source(*ids):
    return pa.table({"p": [f"{n % 5}{PAD}" for n in ids], "a": ids, "b": [-1 for _ in ids]})


def appends(table):
    for n in range(20):
        write_deltalake(table.table_uri, source(100 + n), mode="append")


def merge(table):
    statement = table.merge(source(3, 300), "t.a = s.a", source_alias="s", target_alias="t")
    statement.when_matched_update_all().when_not_matched_insert_all().execute()


def sidecars(table):
    table.alter.set_table_properties({"delta.checkpointPolicy": "v2"})
    table.create_checkpoint()
    appends(table)
    DeltaTable(table.table_uri).create_checkpoint()


def sound(table):
    return [str(finding) for finding in verify(table.table_uri).findings]


VERBS = {
    "count": lambda table: table.count(),
    "count by statistics": lambda table: table.count("a > 12 AND b < 300"),
    "filter": lambda table: table.to_pyarrow_table(filters="a = 30 OR b = 120").sort_by("a").to_pylist(),
    "filter by partition": lambda table: table.to_pyarrow_table(filters=f"p = '2{PAD}'").sort_by("a").to_pylist(),
    "expression": lambda table: table.to_pyarrow_table(filters=pc.field("p") == f"3{PAD}").sort_by("a").to_pylist(),
    "files": lambda table: len(table.files()),
    "explain": lambda table: table.scan(predicate="a = 3").explain().files_read,
    "add actions": lambda table: table.get_add_actions(flatten=True).num_rows,
    "partitions": lambda table: sorted(map(str, table.partitions())),
    "detail": lambda table: table.detail()["num_files"],
    "history": lambda table: [entry.get("operation") for entry in table.history()],
    "diff": lambda table: table.diff(1, 2).to_table().num_rows,
    "delete": lambda table: table.delete("b = 100")["num_deleted_rows"],
    "delete a partition": lambda table: table.delete(f"p = '1{PAD}'")["num_deleted_rows"],
    "delete all": lambda table: table.delete()["num_deleted_rows"],
    "update": lambda table: table.update({"b": "b + 1"}, predicate="a < 20")["num_updated_rows"],
    "merge": merge,
    "append": appends,
    "overwrite": lambda table: write_deltalake(table.table_uri, source(500), mode="overwrite"),
    "overwrite partitions": lambda table: write_deltalake(
        table.table_uri, source(500), mode="overwrite", partition_overwrite="dynamic"
    ),
    "optimize": lambda table: table.optimize.compact()["numFilesRemoved"],
    "z-order": lambda table: table.optimize.z_order(["a"])["numFilesRemoved"],
    "purge": lambda table: table.optimize.purge()["numFilesRemoved"],
    "checkpoint": lambda table: table.create_checkpoint(),
    "sidecars": sidecars,
    "restore": lambda table: table.restore(1),
    "vacuum": lambda table: sorted(table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)),
    "verify": sound,
}


def outcome(original, folder, verb):
    """The answer of a statement on a copy of the table, and the rows after it as a new handle reads them."""
    shutil.copytree(original, folder)
    answer = VERBS[verb](DeltaTable(folder))
    rows = DeltaTable(folder).to_pyarrow_table().sort_by("a").to_pylist()
    return (None if answer is None or not isinstance(answer, (int, str, list)) else answer), rows


@pytest.mark.parametrize("verb", VERBS)
def test_a_list_of_files_is_never_one_array(original, tmp_path, monkeypatch, verb):
    expected = outcome(original, tmp_path / "usual", verb)
    monkeypatch.setattr(arrays, "TEXT_BYTES", LIMIT)
    monkeypatch.setattr(arrays, "PIECE_ROWS", 16)
    assert outcome(original, tmp_path / "limited", verb) == expected


@pytest.mark.parametrize(
    ("modules", "verb"),
    [
        (["engine.scan.skipping", "engine.log.statistics"], "count by statistics"),
        (["engine.scan.file_stats", "engine.log.statistics"], "count"),
        (["arrow.partition"], "partitions"),
        (["engine.log.statistics"], "add actions"),
        (["engine.log.checkpoint_write"], "checkpoint"),
    ],
)
def test_without_pieces_a_statement_ends_in_one_error(original, tmp_path, monkeypatch, modules, verb):
    table = DeltaTable(shutil.copytree(original, tmp_path / "table"))
    for module in modules:
        monkeypatch.setattr(f"refdelta.{module}.pieces", lambda rows, most=None: [rows])
    monkeypatch.setattr(arrays, "TEXT_BYTES", LIMIT)
    message = "bytes of strings together; at most 2,000 can be worked on at once"
    with pytest.raises(NotEnoughMemoryError, match=message):
        VERBS[verb](table)


PROGRAM = """
import resource, sys, warnings
warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
from refdelta import DeltaTable
table, verb = DeltaTable(sys.argv[1]), sys.argv[2]
if verb == "count": assert table.count() == 1_000_000
if verb == "filter": assert table.scan(predicate="a = 1").to_table().num_rows == 0
if verb == "delete": table.delete("a = 1")
if verb == "checkpoint": table.create_checkpoint()
print("done")
"""


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    """A table of a million files with 2.2 KB of statistics each, in a checkpoint of two parts."""
    folder, half = tmp_path_factory.mktemp("million"), 500_000
    schema = handmade.struct(handmade.field("a", "long"))
    strings = pa.map_(pa.string(), pa.string())
    (folder / "_delta_log").mkdir()
    handmade.write_commit(folder, 0, handmade.PROTOCOL, handmade.metadata(schema))
    handmade.write_commit(folder, 1, {"commitInfo": {"timestamp": 1}})
    bounds = {"minValues": {"a": 5}, "maxValues": {"a": 6}, "nullCount": {"a": 0}}
    stats = json.dumps({"numRecords": 1, **bounds, "pad": "x" * 2_100})
    told = handmade.metadata(schema)["metaData"] | {
        "format": {"provider": "parquet", "options": []},
        "configuration": [],
    }
    for part in (1, 2):
        columns = {
            "path": pa.array([f"f{part}-{number}" for number in range(half)]),
            "partitionValues": pa.array([[]] * half, strings),
            "size": pa.array([1] * half, pa.int64()),
            "modificationTime": pa.array([1] * half, pa.int64()),
            "dataChange": pa.array([True] * half),
            "stats": pa.DictionaryArray.from_arrays(pa.array([0] * half, pa.int32()), pa.array([stats])),
        }
        rows = {"add": pa.StructArray.from_arrays(list(columns.values()), names=list(columns))}
        if part == 1:
            rows["protocol"] = pa.array([handmade.PROTOCOL["protocol"]] + [None] * (half - 1), pa.struct(
                [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]))  # fmt: skip
            rows["metaData"] = pa.array([told] + [None] * (half - 1), pa.struct(
                [("id", pa.string()), ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
                 ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
                 ("configuration", strings)]))  # fmt: skip
        name = f"{1:020d}.checkpoint.{part:010d}.{2:010d}.parquet"
        pq.write_table(pa.table(rows), folder / "_delta_log" / name, compression="zstd", store_schema=False)
    return folder


@pytest.mark.tier("nightly")
@pytest.mark.breaks_tables  # its commits do not have the files
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("verb", ["count", "filter", "delete", "checkpoint"])
def test_more_than_two_gib_of_statistics(million, tmp_path, verb):
    folder = Path(shutil.copytree(million, tmp_path / "table"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder, verb], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_columns_are_put_together_in_one_module():
    folder = Path(arrays.__file__).parents[1]
    calls = ("combine_chunks(", "concat_arrays(", "concat_batches(")
    found = [
        f"{path.relative_to(folder)}:{number}"
        for path in folder.rglob("*.py")
        if path != Path(arrays.__file__) and path.relative_to(folder).parts[0] != "demo"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(call in line for call in calls)
    ]
    assert not found, "use concat, one_array, one_batch or few_chunks of refdelta.arrow.arrays"
