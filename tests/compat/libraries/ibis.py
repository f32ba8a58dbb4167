"""Ibis: to_delta from DuckDB and Polars, and read_delta by Polars."""

import ibis

duckdb, polars = ibis.duckdb.connect(), ibis.polars.connect()
towns = ibis.memtable({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"]})
duckdb.to_delta(towns, "towns")
towns.filter(towns.id > 2).mutate(id=towns.id + 1).to_delta("towns", mode="append")
polars.to_delta(towns, "others", partition_by=["town"])

found = polars.read_delta("towns")
assert sorted(polars.execute(found.id)) == [1, 2, 3, 4]
assert polars.execute(found.filter(found.id == 4).town).tolist() == ["Kiel"]
assert polars.execute(polars.read_delta("towns", version=0).count()) == 3
assert sorted(polars.execute(polars.read_delta("others").town)) == ["Bonn", "Kiel", "Ulm"]
