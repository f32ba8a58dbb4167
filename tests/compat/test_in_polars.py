"""Polars' own functions of Delta tables on the compat module, which stands in for ``deltalake``."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("polars")

PROGRAM = """
    import sys
    import refdelta.compat.deltalake as compat
    sys.modules["deltalake"] = compat
    sys.modules["deltalake.exceptions"] = compat.exceptions
    import polars as pl

    uri = sys.argv[1]
    frame = pl.DataFrame({"id": [1, 2, 3, 4], "p": ["a b", "a b", "x%y", "x%y"]})
    vectors = {"delta.enableDeletionVectors": "true"}
    frame.write_delta(uri, delta_write_options={"partition_by": ["p"], "configuration": vectors})
    table = compat.DeltaTable(uri)
    table.delete("id = 1 OR id = 4")
    assert table.deletion_vectors().read_all().num_rows == 2
    assert table.history(1)[0]["engineInfo"].startswith("refdelta/")
    for source in (uri, table):
        assert sorted(pl.scan_delta(source).filter(pl.col("p") != "").collect()["id"]) == [2, 3]
    options = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
    frame.write_delta(uri, mode="merge", delta_merge_options=options).when_not_matched_insert_all().execute()
    assert sorted(pl.read_delta(uri)["id"]) == [1, 2, 3, 4]
    assert sorted(pl.read_delta(uri, version=0)["id"]) == [1, 2, 3, 4]
"""


@pytest.mark.tier("test")
def test_polars_reads_and_writes_through_it(tmp_path):
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
