"""Change files against the difference of two versions, and vectors of versions that are no longer the newest.

Tests of verifier.change_files.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.verifier.run import verify

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "part": ["x", "x", "y", None],
        "l": pa.array([[1], [], None, [2, None]], pa.list_(pa.int32())),
        "f": [0.0, float("nan"), None, 1.5],
    }
)
SOURCE = pa.table({"id": [2, 9], "part": ["x", "z"], "l": pa.array([[7], [8]], pa.list_(pa.int32())), "f": [2.0, 3.0]})
FED = {"delta.enableChangeDataFeed": "true"}


def merged(table):
    merge = table.merge(SOURCE, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(
        "t.id = 3"
    ).execute()


STATEMENTS = {
    "update": lambda table: table.update(predicate="id < 3", updates={"f": "id + 0.5"}),
    "delete": lambda table: table.delete("id = 1 OR id = 3"),
    "merge": merged,
}
LAYOUTS = {
    "plain": {},
    "partitioned": {"partition_by": ["part"]},
    "vectors": {"configuration": FED | {"delta.enableDeletionVectors": "true"}},
    "by name": {"configuration": FED | {"delta.columnMapping.mode": "name"}, "partition_by": ["part"]},
    "by id": {"configuration": FED | {"delta.columnMapping.mode": "id"}},
}


def made(path, layout="plain", statement="merge"):
    write_deltalake(path, ROWS, **({"configuration": FED} | LAYOUTS[layout]))
    STATEMENTS[statement](DeltaTable(path))
    return path


def found(path, **options):
    report = verify(path, **({"sample": None} | options))
    assert report.unchecked == []
    return [(finding.clause, finding.version) for finding in report.findings]


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_refdelta_tells_is_what_it_did(tmp_path, layout, statement):
    path = made(tmp_path / "t", layout, statement)
    assert found(path) == []
    recorded = (path / "_change_data").exists()
    assert verify(path, sample=None).checked["versions with change files"] == recorded
    assert recorded or (layout, statement) == ("vectors", "delete")


@pytest.mark.sample(check=3, test=25)
@pytest.mark.parametrize("predicate", ["id = 2", "id < 3", "part = 'x'", "true", "id = 99"])
@pytest.mark.parametrize("statement", ["delete", "update", "merge"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_statement_and_an_append_in_one_transaction(tmp_path, layout, statement, predicate):
    path = tmp_path / "t"
    write_deltalake(path, ROWS, **({"configuration": FED} | LAYOUTS[layout]))
    hit = DeltaTable(path).to_pyarrow_table(filters=predicate).column("id").to_pylist()
    with DeltaTable(path).begin() as txn:
        txn.append(SOURCE)
        if statement == "delete":
            txn.delete(predicate)
        elif statement == "update":
            txn.update({"f": "7"}, predicate=predicate)
        else:
            txn.merge(pa.table({"k": hit}), "t.id = s.k").when_matched_delete().execute()
        txn.commit()
    changes = DeltaTable(path).load_cdf(1).read_all()
    kinds = ["update_preimage", "update_postimage"] if statement == "update" else ["delete"]
    wanted = [("insert", number) for number in SOURCE.column("id").to_pylist()]
    wanted += [(kind, number) for kind in kinds for number in hit]
    told = zip(changes.column("_change_type").to_pylist(), changes.column("id").to_pylist(), strict=True)
    assert sorted(told) == sorted(wanted)
    assert found(path) == []


def rewritten(path, change):
    """Write each change file anew, its rows as a function leaves them."""
    log = path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "cdc" in line:
            file = path / line["cdc"]["path"]
            data = pq.ParquetFile(file).read()
            pq.write_table(pa.Table.from_pylist(change(data.to_pylist()), data.schema), file)
            line["cdc"]["size"] = file.stat().st_size
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def without_first(rows):
    return rows[1:]


def with_another_value(rows):
    return [row | {"f": 100.0} for row in rows]


def with_another_list(rows):
    return [row | {"l": [5, 6]} if row["_change_type"] == "update_preimage" else row for row in rows]


def turned_round(rows):
    return [
        row | {"_change_type": "delete" if row["_change_type"] == "insert" else row["_change_type"]} for row in rows
    ]


BROKEN = {
    "a row is missing": ("update", without_first),
    "another value": ("update", with_another_value),
    "a list": ("merge", with_another_list),
    "a delete that was an insert": ("merge", turned_round),
    "a deleted row is missing": ("delete", without_first),
}


@pytest.mark.sample(check=2)
@pytest.mark.parametrize("name", BROKEN)
def test_change_files_that_tell_something_else(tmp_path, name):
    statement, change = BROKEN[name]
    path = made(tmp_path / "t", statement=statement)
    rewritten(path, change)
    assert found(path) == [("cdf-3", 1)]
    assert found(path, sample=1) == []  # not even the files of one version
    assert found(path, sample=20) == [("cdf-3", 1)]


def test_rows_in_another_order_are_the_same(tmp_path):
    path = made(tmp_path / "t", "partitioned")
    rewritten(path, lambda rows: rows[::-1])
    assert found(path) == []


def test_versions_whose_files_are_gone_are_left_aside(tmp_path):
    path = made(tmp_path / "t")
    rewritten(path, without_first)
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert found(path) == []


def test_a_merge_that_copied_rows_and_told_nothing(tmp_path):
    path = made(tmp_path / "t")
    log = path / "_delta_log" / f"{1:020d}.json"
    kept = [line for line in log.read_text().splitlines() if '"cdc"' not in line]
    log.write_text("\n".join(kept) + "\n")
    assert found(path, sample=0) == [("cdf-3", 1)]
    # One that only removes and inserts needs none.
    kept = [_without_updates(line) for line in kept]
    log.write_text("\n".join(kept) + "\n")
    assert found(path, sample=0) == []


def _without_updates(line):
    action = json.loads(line)
    for name in ("numTargetRowsUpdated", "numTargetRowsCopied"):
        action.get("commitInfo", {}).get("operationMetrics", {})[name] = "0"
    return json.dumps(action)


# --- vectors of older versions -------------------------------------------------------------------------------------


def with_old_vectors(path, inline):
    on = {"delta.enableDeletionVectors": "true", "refdelta.inlineDeletionVectors": str(inline).lower()}
    write_deltalake(path, ROWS, configuration=on)
    for number in (1, 2):
        DeltaTable(path).delete(f"id = {number}")
    return path


@pytest.mark.parametrize("inline", [True, False])
def test_vectors_of_older_versions_are_looked_at(tmp_path, inline):
    path = with_old_vectors(tmp_path / "t", inline)
    assert found(path) == []
    assert verify(path).checked["older vectors"] == 1
    assert verify(path).checked["vectors"] == 1


def test_an_old_vector_of_another_cardinality(tmp_path):
    path = with_old_vectors(tmp_path / "t", inline=True)
    for version in (1, 2):
        log = path / "_delta_log" / f"{version:020d}.json"
        text = log.read_text()
        one = [json.loads(line) for line in text.splitlines()]
        kind = "add" if version == 1 else "remove"
        vector = next(line[kind]["deletionVector"] for line in one if kind in line)
        vector["cardinality"] = 2
        log.write_text("".join(json.dumps(line) + "\n" for line in one))
        (path / "_delta_log" / f"{version:020d}.crc").unlink(missing_ok=True)
    assert found(path) == [("dv-2", 1)]


def test_an_old_vector_that_is_damaged_and_one_that_is_gone(tmp_path):
    path = with_old_vectors(tmp_path / "t", inline=False)
    old, _ = sorted(path.glob("deletion_vector_*"), key=lambda file: file.stat().st_mtime_ns)
    data = old.read_bytes()
    old.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert found(path) == [("dv-2", 1)]
    old.unlink()
    assert found(path) == []


# --- side by side --------------------------------------------------------------------------------------------------


def test_files_are_looked_at_by_the_threads_of_the_store(tmp_path, monkeypatch):
    path = tmp_path / "t"
    for _ in range(6):
        write_deltalake(path, ROWS, mode="append")
    (file,) = (path.glob("*.parquet"),)
    broken = sorted(file)[2]
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    asked = []
    usual = ThreadExecutor.for_store

    def for_store(store, sizes=None, **options):
        asked.append(sizes.to_pylist())
        return usual(store, sizes, **options)

    monkeypatch.setattr(ThreadExecutor, "for_store", for_store)
    done = []
    report = verify(path, sample=None, progress=lambda *what: done.append(what))
    assert asked[0] == [add["size_bytes"] for add in DeltaTable(path).get_add_actions(flatten=True).to_pylist()]
    assert [finding.file for finding in report.findings] == [broken.name]
    assert report.checked["rows"] == 5 * ROWS.num_rows
    assert [what for what in done if what[0] == "files"] == [("files", number, 6) for number in range(1, 7)]
