"""Parquet over a network: the rows are those of the file, the requests are few, and no more is held than is said.

Tests of engine.parquet.files.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from handmade import VECTORS, Handmade, add, checkpoint_file, field, parquet, struct
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet import dv, ranged
from refdelta.engine.parquet.dv import VectorLoader, load_deletion_vectors, write_vectors
from refdelta.engine.parquet.files import open_parquet
from refdelta.engine.scan.reader import count_rows
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.engine.work import executor
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileError, DataFileNotFoundError, InvalidLogError, StoreError
from refdelta_storage import Capabilities, MemoryStore, ObjectNotFoundError
from refdelta_storage.errors import StorageError
from tiers import examples


class Remote(MemoryStore):
    """A store that says that it is far away, and remembers what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.trouble = None
        self.ranges = Counter()

    @property
    def capabilities(self):
        return Capabilities(put_if_absent=True, list_after=True, durable=False, remote=True)

    def _see(self, method, key, start=0, length=0):
        self.asked.append((method, key, start, length))
        if self.trouble:
            self.trouble(method, key, start)

    def get(self, key):
        self._see("get", key)
        return super().get(key)

    def get_range(self, key, start, length):
        self._see("range", key, start, length)
        return super().get_range(key, start, length)

    def get_ranges(self, key, wanted):
        wanted = [*wanted]
        self.ranges[len(wanted)] += 1
        return [self.get_range(key, start, length) for start, length in wanted]

    def head(self, key):
        self._see("head", key)
        return super().head(key)

    def open_input(self, key, size=None):
        raise AssertionError("a stream of a remote object is a request for each of its reads")

    def methods(self, suffix=".parquet"):
        return [method for method, key, *_ in self.asked if key.endswith(suffix)]


SCHEMA = struct(field("x", "long"), field("s", "string"), field("n", struct(field("a", "long"), field("b", "string"))))


def content(rows=1000):
    return pa.table(
        {
            "x": pa.array(range(rows), pa.int64()),
            "s": [f"text {i * 7919 % rows}" for i in range(rows)],
            "n": [{"a": i, "b": str(i)} for i in range(rows)],
        }
    )


@pytest.fixture
def tiny(monkeypatch):
    """All sizes a thousandth, so that a small file is a large one."""
    for name in ("WHOLE_BYTES", "FOOTER_BYTES", "GAP_BYTES", "REQUEST_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(ranged, name, max(16, getattr(ranged, name) // 1000))


def stored(table, **options):
    store = Remote()
    data = parquet(table, **options)
    store.put("f.parquet", data)
    return store, len(data)


# --- one file ----------------------------------------------------------------------------------------------------


@examples(60)
@given(data=st.data())
def test_the_rows_are_those_that_pyarrow_reads_from_the_whole_file(data):
    rows = data.draw(st.integers(0, 300))
    table = content(rows)
    options = {
        "row_group_size": data.draw(st.integers(1, 120)),
        "use_dictionary": data.draw(st.booleans()),
        "compression": data.draw(st.sampled_from(["snappy", "none"])),
        "data_page_size": 100,
    }
    store, size = stored(table, **options)
    groups = range(pq.ParquetFile(pa.BufferReader(store.get("f.parquet"))).num_row_groups)
    chosen = sorted(data.draw(st.sets(st.sampled_from(groups)))) if groups else []
    columns = data.draw(st.lists(st.sampled_from(["x", "s", "n", "n.b"]), unique=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranged, "WHOLE_BYTES", data.draw(st.sampled_from([0, 2000])))
        for name in ("FOOTER_BYTES", "GAP_BYTES", "REQUEST_BYTES", "CHUNK_BYTES"):
            patch.setattr(ranged, name, data.draw(st.sampled_from([8, 100, 1000, 100_000])))
        hint = data.draw(st.sampled_from([size, None, size - 1, size + 1, 0, -1, 1, 10 * size, 2**62]))
        found = open_parquet(store, "f.parquet", hint)
        with pq.ParquetFile(pa.BufferReader(store.get("f.parquet"))) as whole:
            for wanted in (chosen, None):
                batches = [b for b in found.iter_batches(50, row_groups=wanted, columns=columns) if b.num_rows]
                expected = [b for b in whole.iter_batches(50, row_groups=wanted, columns=columns) if b.num_rows]
                assert sum(b.num_rows for b in batches) == sum(b.num_rows for b in expected)
                if columns and expected:
                    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(expected))
    ends = [start + length for method, _, start, length in store.asked if method == "range"]
    assert hint != size or max(ends, default=0) <= size


def test_a_small_file_is_one_request():
    store, size = stored(content())
    assert open_parquet(store, "f.parquet", size).read().num_rows == 1000
    assert store.asked == [("range", "f.parquet", 0, size)]


@pytest.mark.tier("test")
def test_of_a_large_file_come_the_footer_and_the_columns_that_are_wanted(tiny):
    store, size = stored(content(20_000), row_group_size=5000)
    found = open_parquet(store, "f.parquet", size)
    footer = found.metadata
    assert footer.serialized_size < 5000
    store.asked.clear()
    assert sum(batch.num_rows for batch in found.iter_batches(row_groups=[1, 3], columns=["s"])) == 10_000
    column = footer.schema.names.index("s")
    wanted = [footer.row_group(group).column(column) for group in (1, 3)]
    assert sum(length for *_, length in store.asked) == sum(chunk.total_compressed_size for chunk in wanted)
    assert all(length <= ranged.REQUEST_BYTES for *_, length in store.asked)


def test_what_lies_together_is_one_request_and_what_is_long_several():
    size, gap, most = 100 * 2**20, ranged.GAP_BYTES, ranged.REQUEST_BYTES
    assert ranged.join_ranges([(100 + gap, 50), (0, 100)], size) == [(0, 150 + gap)]
    assert ranged.join_ranges([(0, 100), (101 + gap, 50)], size) == [(0, 100), (101 + gap, 50)]
    assert ranged.join_ranges([(0, most), (most, 10)], size) == [(0, most), (most, 10)]
    assert ranged.join_ranges([(0, 3 * most), (5, 10)], size) == [(0, 3 * most)]
    # What a broken footer says stays within the object.
    assert ranged.join_ranges([(-5, 10), (size - 1, 2**60), (2**62, 1), (7, -3), (9, 0)], size) == [
        (0, 5),
        (size - 1, 1),
    ]


def test_small_row_groups_come_together(tiny):
    store, size = stored(content(20_000), row_group_size=100)
    found = open_parquet(store, "f.parquet", size)
    store.ranges.clear()
    assert sum(batch.num_rows for batch in found.iter_batches(columns=["x"])) == 20_000
    chunks = [found.metadata.row_group(group).column(0).total_compressed_size for group in range(200)]
    assert 3 < sum(store.ranges.values()) <= -(-sum(chunks) // (ranged.CHUNK_BYTES - max(chunks)))


def test_the_next_row_groups_are_fetched_while_these_are_decoded(tiny):
    store, size = stored(content(20_000), row_group_size=1000, use_dictionary=False)
    found = open_parquet(store, "f.parquet", size)
    footer, asked = found.metadata, threading.Event()
    before = threading.active_count()
    store.trouble = lambda method, key, start: (
        asked.set() if start == ranged.chunk_start(footer.row_group(1).column(0)) else None
    )
    batches = found.iter_batches(columns=["x"])
    next(batches)
    assert asked.wait(120)
    batches.close()
    assert threading.active_count() == before


def test_no_more_than_two_chunks_are_held(tiny, monkeypatch):
    store, size = stored(content(40_000), row_group_size=1000, compression="none", use_dictionary=False)
    found = open_parquet(store, "f.parquet", size)
    held = []
    fetch = ranged._Window.fetch

    def watched(window, ranges):
        pieces = fetch(window, ranges)
        held.append(sum(map(len, pieces.values())) + sum(map(len, window.pieces.values())))
        return pieces

    monkeypatch.setattr(ranged._Window, "fetch", watched)
    assert sum(batch.num_rows for batch in found.iter_batches(columns=["x", "s"])) == 40_000
    portion = ranged.CHUNK_BYTES
    group = max(found.metadata.row_group(number).total_byte_size for number in range(40))
    assert len(held) > 20
    assert max(held) <= 2 * max(portion, group + 8 * ranged.GAP_BYTES)
    assert not found._window.pieces


@pytest.mark.tier("test")
def test_a_reader_that_is_dropped_stops_fetching(tiny):
    store, size = stored(content(40_000), row_group_size=1000)
    before = threading.active_count()
    batches = open_parquet(store, "f.parquet", size).iter_batches()
    next(batches)
    batches.close()
    assert sum(store.ranges.values()) <= 2
    assert threading.active_count() == before


@pytest.mark.tier("test")
def test_for_a_footer_the_end_is_enough():
    store, size = stored(content(200_000), use_dictionary=False, compression="none")
    assert size > ranged.WHOLE_BYTES
    assert open_parquet(store, "f.parquet", size, footer_only=True).metadata.num_rows == 200_000
    assert store.asked == [("range", "f.parquet", size - ranged.FOOTER_BYTES, ranged.FOOTER_BYTES)]


def test_of_a_footer_that_is_longer_than_what_was_fetched_comes_the_rest(monkeypatch):
    wide = pa.table({f"column {i}": range(10) for i in range(1000)})
    store, size = stored(wide)
    monkeypatch.setattr(ranged, "WHOLE_BYTES", 0)
    found = open_parquet(store, "f.parquet", size)
    length = found.metadata.serialized_size + 8
    assert length > ranged.FOOTER_BYTES
    assert sum(asked for *_, asked in store.asked) == length
    assert len(store.asked) == 2
    assert next(found.iter_batches(columns=["column 7"])).to_pydict() == {"column 7": [*range(10)]}
    assert len(store.asked) == 3


def test_a_size_that_is_wrong_in_the_log_costs_requests_and_nothing_else():
    store, size = stored(content())
    for hint in (0, 1, size - 1, size + 1, 10 * size, 2**62, -5, None):
        store.asked.clear()
        assert open_parquet(store, "f.parquet", hint).read().equals(content())
        assert 1 <= len(store.asked) <= 5


@pytest.mark.parametrize("length", [0, 3, 4, 12, 5000])
def test_what_is_no_parquet(length):
    store = Remote()
    store.put("f.parquet", bytes(length))
    table = Handmade(SCHEMA, store=store)
    table.commit(add("f.parquet", size=length))
    with pytest.raises(DataFileError, match=r"f\.parquet"):
        plan_scan(load_snapshot(store)).to_table()


def test_a_file_that_is_cut_while_it_is_read(tiny):
    store, size = stored(content(20_000), row_group_size=5000)
    found = open_parquet(store, "f.parquet", size)
    store.put("f.parquet", store.get("f.parquet")[: size // 2])
    with pytest.raises((OSError, ValueError), match=r"(?i)unexpected end|EOF|expected|no page"):
        list(found.iter_batches())


# --- a table -----------------------------------------------------------------------------------------------------


def remote_table(files=3, rows=20_000, **options):
    store = Remote()
    table = Handmade(SCHEMA, store=store, **options)
    for i in range(files):
        table.commit(table.data(f"f{i}.parquet", content(rows), parquet={"row_group_size": 5000}))
    store.asked.clear()
    return table


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_trouble_of_the_store_is_not_blamed_on_the_file(tiny, number):
    """The first request brings the end, the second the rest of the footer, the third is pyarrow's own for more than
    that, the fourth brings columns.
    """
    table = remote_table()
    scan = plan_scan(load_snapshot(table.store))
    before = threading.active_count()

    def fails(error):
        count = iter(range(1, 1000))

        def trouble(method, key, start):
            if key == "f0.parquet" and next(count) == number:
                raise error

        return trouble

    table.store.trouble = fails(StorageError("no connection"))
    with pytest.raises(StoreError, match=r"f0\.parquet.*no connection"):
        scan.to_table()
    table.store.trouble = fails(ObjectNotFoundError("it is gone"))
    with pytest.raises(DataFileNotFoundError, match=r"f0\.parquet"):
        scan.to_table()
    table.store.trouble = None
    assert scan.to_table().num_rows == 60_000
    assert threading.active_count() == before


def test_rows_are_found_by_position_across_row_groups_that_are_left_out(tiny):
    table = remote_table(files=1)
    scan = plan_scan(load_snapshot(table.store), ["x"], "x < 10 or (x >= 9995 and x < 10005)")
    assert scan.to_table()["x"].to_pylist() == [*range(10), *range(9995, 10_005)]
    asked = sum(length for _, key, _, length in table.store.asked if key == "f0.parquet")
    assert asked < table.store.head("f0.parquet").size / 2


def test_many_small_files_are_read_at_a_time_and_few_large_ones():
    store = Remote()
    sizes = [pa.chunked_array([[size] * count]) for size, count in ((2**20, 500), (2**30, 500), (2**20, 3), (2**25, 9))]
    near = ThreadExecutor().workers
    assert [ThreadExecutor.for_store(store, each).workers for each in sizes[:3]] == [32, near, 32]
    assert ThreadExecutor.for_store(store, sizes[3]).workers == max(near, executor.LOOK_AHEAD_BYTES // 2**25)
    assert ThreadExecutor.for_store(MemoryStore(), sizes[0]).workers == near


def test_files_are_asked_for_side_by_side():
    table = remote_table(files=16, rows=100)
    scan = plan_scan(load_snapshot(table.store))
    together = threading.Barrier(16, timeout=120)

    def wait(method, key, start):
        if key.endswith(".parquet"):
            together.wait()  # breaks, unless all sixteen come

    table.store.trouble = wait
    assert scan.to_table().num_rows == 1600
    assert table.store.methods() == ["range"] * 16


def test_footers_are_asked_for_side_by_side():
    table = Handmade(SCHEMA, store=Remote())
    for i in range(16):
        table.commit(table.data(f"f{i}.parquet", content(100), rows=None, stats=None))
    scan = plan_scan(load_snapshot(table.store))
    together = threading.Barrier(16, timeout=120)
    table.store.trouble = lambda method, key, start: together.wait()
    assert scan.count() == 1600
    table.store.trouble = None
    table.store.asked.clear()
    assert count_rows(table.store, scan_files(scan)[0]) == 100
    assert table.store.methods() == ["range"]


# --- checkpoints -------------------------------------------------------------------------------------------------


def test_parts_and_sidecars_of_a_checkpoint_are_asked_for_side_by_side_and_once_each():
    table = Handmade(store=Remote())
    first = Handmade(SCHEMA)
    actions = [*load(first, 0)]
    sidecars = []
    for i in range(6):
        data = checkpoint_file([table.data(f"f{i}.parquet", content(10))])
        table.put(f"_delta_log/_sidecars/s{i}.parquet", data)
        sidecars.append({"sidecar": {"path": f"s{i}.parquet", "sizeInBytes": len(data), "modificationTime": 1}})
    table.checkpoint(0, [*actions, *sidecars, {"checkpointMetadata": {"version": 0}}])
    table.put("_delta_log/00000000000000000000.json", first.store.get("_delta_log/00000000000000000000.json"))
    together = threading.Barrier(6, timeout=120)
    table.store.trouble = lambda method, key, start: together.wait() if "_sidecars" in key else None
    table.store.asked.clear()
    assert load_snapshot(table.store).num_files == 6
    assert table.store.methods() == ["range"] * 7


def load(table, version):
    return [json.loads(line) for line in table.store.get(f"_delta_log/{version:020d}.json").splitlines()]


def test_a_sidecar_that_is_gone_or_broken_is_named():
    table = Handmade(SCHEMA, store=Remote())
    sidecar = {"sidecar": {"path": "s.parquet", "sizeInBytes": 1000, "modificationTime": 1}}
    table.checkpoint(0, [*load(table, 0), sidecar, {"checkpointMetadata": {"version": 0}}])
    store = table.store
    store.delete(["_delta_log/00000000000000000000.json"])
    with pytest.raises(InvalidLogError, match=r"s\.parquet"):
        load_snapshot(store)
    store.put("_delta_log/_sidecars/s.parquet", b"PAR1 is what it begins and ends with PAR1")
    with pytest.raises(InvalidLogError, match=r"s\.parquet"):
        load_snapshot(store)


# --- deletion vectors --------------------------------------------------------------------------------------------


def bitmaps(count):
    return [BitMap64(range(i, 40_000, 7 + i)) for i in range(count)]


def test_the_vectors_of_one_file_are_one_request():
    store = Remote()
    placed = write_vectors(store, bitmaps(20))
    store.asked.clear()
    assert load_deletion_vectors(store, [*placed, None]) == [*bitmaps(20), BitMap64()]
    assert store.methods(".bin") == ["range"]


def test_vectors_of_several_files_are_asked_for_side_by_side():
    store = Remote()
    placed = [one for i in range(8) for one in write_vectors(store, [BitMap64([i]), BitMap64([i, i + 1])])]
    together = threading.Barrier(8, timeout=120)
    store.trouble = lambda method, key, start: together.wait()
    expected = [BitMap64(rows) for i in range(8) for rows in ([i], [i, i + 1])]
    assert load_deletion_vectors(store, placed) == expected
    assert store.methods(".bin") == ["range"] * 8


def test_a_scan_fetches_vectors_that_lie_together_once():
    store = Remote()
    table = Handmade(SCHEMA, store=store, protocol=VECTORS)
    placed = write_vectors(store, [BitMap64([i]) for i in range(10)])
    for i, one in enumerate(placed):
        vector = {
            "storageType": one.storage_type,
            "pathOrInlineDv": one.path_or_inline_dv,
            "offset": one.offset,
            "sizeInBytes": one.size_in_bytes,
            "cardinality": 1,
        }
        table.commit(table.data(f"f{i}.parquet", content(10), deletionVector=vector))
    scan = plan_scan(load_snapshot(store), ["x"])
    store.asked.clear()
    assert scan.to_table()["x"].to_pylist() == [x for i in range(10) for x in range(10) if x != i]
    assert store.methods(".bin") == ["range"]
    assert store.methods(".parquet") == ["range"] * 10


@examples(40)
@given(st.data())
def test_whatever_is_held_back_or_dropped_the_vectors_are_right(data):
    store = Remote()
    wanted = [
        BitMap64(data.draw(st.sets(st.integers(0, 2**33), max_size=20))) for _ in range(data.draw(st.integers(1, 12)))
    ]
    placed = write_vectors(store, wanted)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GAP_BYTES", "REQUEST_BYTES", "HELD_BYTES"):
            patch.setattr(dv, name, data.draw(st.sampled_from([0, 10, 100, 1000, 10_000])))
        known = data.draw(st.lists(st.sampled_from(range(len(placed))), unique=True))
        vectors = VectorLoader(store, [placed[i] for i in known])
        for i in data.draw(st.lists(st.sampled_from(range(len(placed))), max_size=30)):
            assert vectors.load(placed[i]) == wanted[i]
            held = list(vectors._held)
            assert vectors._held_bytes == sum(len(run.data) for run in held)
            assert vectors._held_bytes <= max(dv.HELD_BYTES, max((len(run.data) for run in held), default=0))


def test_what_all_have_taken_is_not_held():
    store = Remote()
    placed = write_vectors(store, bitmaps(5))
    vectors = VectorLoader(store, placed)
    for one in placed[:-1]:
        vectors.load(one)
        assert vectors._held_bytes
    vectors.load(placed[-1])
    assert not vectors._held_bytes
    assert not vectors._held


def test_vectors_can_be_sent_to_another_process():
    store = MemoryStore("vectors to send")
    placed = write_vectors(store, bitmaps(3))
    sent = pickle.loads(pickle.dumps(VectorLoader(store, placed)))
    assert [sent.load(one) for one in placed] == bitmaps(3)


def test_a_damaged_vector_is_named_and_its_neighbours_are_read():
    store = Remote()
    placed = write_vectors(store, bitmaps(3))
    (key,) = [info.key for info in store.list()]
    content = bytearray(store.get(key))
    content[placed[1].offset + 20] ^= 255
    store.put(key, bytes(content))
    vectors = VectorLoader(store, placed)
    with pytest.raises(DataFileError, match="checksum"):
        vectors.load(placed[1])
    assert vectors.load(placed[2]) == bitmaps(3)[2]
    store.delete([key])
    with pytest.raises(DataFileNotFoundError, match="deletion vector"):
        load_deletion_vectors(store, placed)
