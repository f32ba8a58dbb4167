"""How many requests a read makes, at the level of HTTP, on S3 and on Azure."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pyarrow as pa
import pytest

from handmade import Handmade, add, checkpoint_file, field, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.engine.parquet import ranged
from refdelta_storage import open_store

ROWS = 1000
SCHEMA = struct(field("x", "long"), field("y", "long"), field("z", "long"))


def rows(number):
    first = number * ROWS
    return pa.table({"x": range(first, first + ROWS), "s": [f"row {i}" for i in range(ROWS)]})


@pytest.fixture
def place(proxy):
    """A place by way of the proxy."""
    return proxy.place()


@pytest.fixture
def four(proxy, place):
    """A table of four commits, each of which adds a small file."""
    for number in range(4):
        write_deltalake(place.uri, rows(number), mode="append", storage_options=place.options)
    proxy.reset()
    return place


@pytest.fixture
def made(proxy, place):
    """A table made by hand, still without a version."""
    return Handmade(store=open_store(place.uri, place.options))


def opened(place):
    return DeltaTable(place.uri, storage_options=place.options)


def test_a_small_table_cold_and_again(proxy, four, told):
    table = opened(four)
    assert table.to_pyarrow_table().num_rows == 4 * ROWS
    assert proxy.counts == told("read-1")
    proxy.reset()
    assert table.to_pyarrow_table().num_rows == 4 * ROWS
    assert proxy.counts == told("read-2")
    proxy.reset()
    table.update_incremental()
    assert table.to_pyarrow_table().num_rows == 4 * ROWS
    assert proxy.counts == told("read-3")
    assert {seen.status for seen in proxy.seen} <= {200, 206}


def test_looking_at_the_log(proxy, four, told):
    def costs(row, look):
        proxy.reset()
        found = look()
        assert proxy.counts == told(row)
        return found

    old = costs("read-14", lambda: DeltaTable(four.uri, version=1, storage_options=four.options))
    assert len(old.file_uris()) == 2
    table = opened(four)
    assert [entry["version"] for entry in costs("read-15", lambda: table.history(2))] == [3, 2]
    assert costs("read-16", lambda: DeltaTable.is_deltatable(four.uri, four.options))
    assert costs("read-17", lambda: (table.detail(), table.get_add_actions(), table.schema(), table.metadata()))
    assert costs("read-17", lambda: table.scan(predicate="x = 1005").explain()).files_read == 1


def test_a_scan_that_is_pruned(proxy, four, told):
    table = opened(four)
    proxy.reset()
    assert table.to_pyarrow_table(["s"], filters="x = 1005")["s"].to_pylist() == ["row 5"]
    assert proxy.counts == told("read-4")


def test_counting(proxy, place, made, told):
    with_statistics = Handmade(SCHEMA, store=made.store)
    content = pa.table({name: pa.array(range(ROWS), pa.int64()) for name in "xyz"})
    for i in range(4):
        with_statistics.commit(with_statistics.data(f"f{i}.parquet", content))
    table = opened(place)
    proxy.reset()
    assert table.count() == 4 * ROWS
    assert proxy.counts == told("read-5")
    for i in range(4):
        with_statistics.commit(with_statistics.data(f"g{i}.parquet", content, stats=None))
    table = opened(place)
    proxy.reset()
    assert table.count() == 8 * ROWS
    assert proxy.counts == told("read-6")


def test_a_table_with_a_checkpoint(proxy, four, told):
    opened(four).create_checkpoint()
    for number in (4, 5):
        write_deltalake(four.uri, rows(number), mode="append", storage_options=four.options)
    proxy.reset()
    assert opened(four).to_pyarrow_table().num_rows == 6 * ROWS
    assert proxy.counts == told("read-7")


def files(made, count):
    content = pa.table({name: pa.array(range(10), pa.int64()) for name in "xyz"})
    return [made.data(f"f{i}.parquet", content) for i in range(count)]


def first_actions(made):
    """A version 0 with protocol and metadata, and these actions."""
    first = Handmade(SCHEMA)
    content = first.store.get(f"_delta_log/{0:020d}.json")
    made.put(f"_delta_log/{0:020d}.json", content)
    return [json.loads(line) for line in content.splitlines()]


def test_a_checkpoint_of_several_parts(proxy, place, made, told):
    actions = first_actions(made)
    for part, group in enumerate([actions, *([file] for file in files(made, 2))], 1):
        made.checkpoint(0, group, f"_delta_log/{0:020d}.checkpoint.{part:010d}.{3:010d}.parquet")
    proxy.reset()
    assert opened(place).count() == 20
    assert proxy.counts == told("read-8")


def test_a_checkpoint_with_sidecars(proxy, place, made, told):
    actions = first_actions(made)
    for i, file in enumerate(files(made, 3)):
        data = checkpoint_file([file])
        made.put(f"_delta_log/_sidecars/{i}.parquet", data)
        actions.append({"sidecar": {"path": f"{i}.parquet", "sizeInBytes": len(data), "modificationTime": 1}})
    made.checkpoint(0, [*actions, {"checkpointMetadata": {"version": 0}}])
    proxy.reset()
    assert opened(place).count() == 30
    assert proxy.counts == told("read-9")


def test_a_large_checkpoint(proxy, place, made, told):
    actions = first_actions(made)
    noise = np.random.default_rng(0)
    adds = [add(f"{noise.bytes(80).hex()}.parquet", rows=1) for _ in range(30_000)]
    size = len(made.store.get(made.checkpoint(0, [*actions, *adds])))
    assert ranged.WHOLE_BYTES < size < ranged.REQUEST_BYTES
    proxy.reset()
    assert opened(place).count() == 30_000
    assert proxy.counts == told("read-10")


def test_deletion_vectors(proxy, place, told):
    for number in range(4):
        write_deltalake(
            place.uri,
            rows(number),
            mode="append",
            storage_options=place.options,
            configuration={"delta.enableDeletionVectors": "true"},
        )
    assert opened(place).delete("x % 10 = 0").metrics["num_deletion_vectors_added"] == 4
    table = opened(place)
    proxy.reset()
    assert table.to_pyarrow_table().num_rows == 4 * ROWS * 9 // 10
    assert proxy.counts == told("read-11")


def bytes_of(seen):
    first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", seen.range).groups()
    return int(first), int(last) + 1


def test_of_a_large_file_what_is_wanted(proxy, place, made, told):
    first_actions(made)
    made.version = 0
    count = 600_000
    noise = np.random.default_rng(0).integers(0, 2**62, (2, count))
    content = pa.table({"x": range(count), "y": noise[0], "z": noise[1]})
    group = count // 4
    action = made.data("f.parquet", content, parquet={"row_group_size": group, "use_dictionary": False})
    made.commit(action)
    size = action["add"]["size"]
    table = opened(place)
    proxy.reset()

    assert table.to_pyarrow_table(["y"], filters=f"x = {group + 5}")["y"].to_pylist() == [noise[0][group + 5]]
    assert proxy.counts == told("read-12")
    end, columns = map(bytes_of, proxy.seen)
    assert end == (size - ranged.FOOTER_BYTES, size)
    # Of the second of four row groups two columns, which lie together, of three.
    assert columns[1] - columns[0] < size / 4
    proxy.reset()

    assert table.to_pyarrow_table().num_rows == count
    assert proxy.counts == told("read-13")
    pieces = sorted(map(bytes_of, proxy.seen))
    assert max(last - first for first, last in pieces) <= ranged.REQUEST_BYTES
    assert all(last <= first for (_, last), (first, _) in itertools.pairwise(pieces[:-1]))
    assert sum(last - first for first, last in pieces) <= size + ranged.FOOTER_BYTES
