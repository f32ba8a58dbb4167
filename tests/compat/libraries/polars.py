"""Polars: write_delta with its modes and MERGE, read_delta, scan_delta, and sink_delta."""

import json
import sys

import polars as pl

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, place = f"{lake}/towns", {"storage_options": options}

towns = pl.DataFrame({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"], "land": ["BW", "NW", "SH"]})
towns.write_delta(uri, **place, delta_write_options={"partition_by": ["land"]})
towns.head(1).with_columns(id=pl.lit(4, pl.Int64)).write_delta(uri, **place, mode="append")
assert sorted(pl.read_delta(uri, **place)["id"]) == [1, 2, 3, 4]
assert sorted(pl.read_delta(uri, version=0, **place)["id"]) == [1, 2, 3]
assert pl.scan_delta(uri, **place).filter(pl.col("land") == "SH").select("town").collect().rows() == [("Kiel",)]

changes = pl.DataFrame({"id": [3, 5], "town": ["Husum", "Jena"], "land": ["SH", "TH"]})
options = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
merge = changes.write_delta(uri, **place, mode="merge", delta_merge_options=options)
merge.when_matched_update_all().when_not_matched_insert_all().execute()
found = pl.read_delta(uri, **place).sort("id")
assert found["town"].to_list() == ["Ulm", "Bonn", "Husum", "Ulm", "Jena"], found

towns.write_delta(uri, **place, mode="overwrite", delta_write_options={"predicate": "land in ('BW', 'NW', 'SH')"})
assert sorted(pl.read_delta(uri, **place)["id"]) == [1, 2, 3, 5]

towns.lazy().with_columns(pl.col("id") * 10).sink_delta(f"{lake}/sunk", **place)
pl.LazyFrame(changes).sink_delta(f"{lake}/sunk", **place, mode="append")
assert sorted(pl.scan_delta(f"{lake}/sunk", **place).collect()["id"]) == [3, 5, 10, 20, 30]
