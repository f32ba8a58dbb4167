"""A checkpoint that another writer replaces while it is read in parts is not taken for one with the other's."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta.engine.parquet import ranged
from refdelta_storage import StorageError, open_store


def parquet(values):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": values}), sink, row_group_size=len(values) // 2, use_dictionary=False)
    return sink.getvalue().to_pybytes()


def test_an_object_that_is_replaced_between_its_footer_and_its_columns(proxy, monkeypatch):
    monkeypatch.setattr(ranged, "WHOLE_BYTES", 0)
    monkeypatch.setattr(ranged, "FOOTER_BYTES", 2000)
    place = proxy.place()
    store = open_store(place.uri, place.options)
    ours, theirs = parquet(list(range(10_000))), parquet(list(reversed(range(10_000))))
    store.put("x.parquet", ours)
    assert ranged.open_ranged(store, "x.parquet", len(ours), footer_only=False).read()["a"][0].as_py() == 0
    opened = ranged.open_ranged(store, "x.parquet", len(ours), footer_only=False)
    store.put("x.parquet", theirs)
    with pytest.raises(StorageError, match=r"'x.parquet' in .* was replaced while it was read"):
        list(opened.iter_batches())
