"""Ibis: to_delta from DuckDB and Polars, and read_delta by Polars."""

import json
import sys

import ibis

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, place = f"{lake}/towns", {"storage_options": options}
duckdb, polars = ibis.duckdb.connect(), ibis.polars.connect()
towns = ibis.memtable({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"]})
duckdb.to_delta(towns, uri, **place)
towns.filter(towns.id > 2).mutate(id=towns.id + 1).to_delta(uri, mode="append", **place)
polars.to_delta(towns, f"{lake}/others", partition_by=["town"], **place)

found = polars.read_delta(uri, **place)
assert sorted(polars.execute(found.id)) == [1, 2, 3, 4]
assert polars.execute(found.filter(found.id == 4).town).tolist() == ["Kiel"]
assert polars.execute(polars.read_delta(uri, version=0, **place).count()) == 3
assert sorted(polars.execute(polars.read_delta(f"{lake}/others", **place).town)) == ["Bonn", "Kiel", "Ulm"]
