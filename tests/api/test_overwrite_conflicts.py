"""Appends beside a full overwrite: which of them it conflicts with, by level."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

deltalake = pytest.importorskip("deltalake")
ROWS = pa.table({"a": [1]})


def after_a_read(path, rows):
    with DeltaTable(path).begin() as txn:
        txn.read()
        txn.append(rows)
        txn.commit()


WRITERS = {
    "blind": lambda path, rows: write_deltalake(path, rows, mode="append"),
    "after a read": after_a_read,
    "deltalake": lambda path, rows: deltalake.write_deltalake(str(path), rows, mode="append"),
}


@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable"])
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0)], ids=["a row", "no row"])
@pytest.mark.parametrize("writer", WRITERS)
def test_an_append_beside_an_overwrite(tmp_path, level, rows, writer):
    write_deltalake(tmp_path, ROWS)
    with DeltaTable(tmp_path).begin(isolation=level) as txn:
        txn.overwrite(ROWS)
        WRITERS[writer](tmp_path, rows)
        if rows.num_rows and (writer != "blind" or level == "Serializable"):
            with pytest.raises(errors.ConcurrentAppendException):
                txn.commit()
        else:
            txn.commit()
            assert DeltaTable(tmp_path).count() == 1 + rows.num_rows  # the rows of the append stay
