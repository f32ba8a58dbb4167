"""Ray Data: write_delta with its modes, partitions and a new column, and read_delta with a version."""

from pathlib import Path

import ray
from ray.data import SaveMode

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
uri, parted = (str(Path(name).resolve()) for name in ("towns", "parted"))


def ids(uri, **options):
    return sorted(row["id"] for row in ray.data.read_delta(uri, **options).take_all())


# Strings of pandas 3 are large ones, which Ray does not append to the table that it has made of such.
towns = ray.data.from_items([{"id": 1, "town": "Ulm"}, {"id": 2, "town": "Bonn"}, {"id": 3, "town": "Kiel"}])
towns.write_delta(uri, name="towns")
towns.map(lambda row: {**row, "id": row["id"] + 3, "size": 9.5}).write_delta(uri)
assert ids(uri) == [1, 2, 3, 4, 5, 6]
assert ids(uri, version=0) == [1, 2, 3]
sizes = [row["size"] for row in ray.data.read_delta(uri, columns=["size"]).take_all()]
assert sorted(sizes, key=str) == [9.5] * 3 + [None] * 3
towns.write_delta(uri, mode=SaveMode.OVERWRITE)
assert ids(uri) == [1, 2, 3]
towns.write_delta(parted, partition_by=["town"])
assert {row["id"]: row["town"] for row in ray.data.read_delta(parted).take_all()} == {1: "Ulm", 2: "Bonn", 3: "Kiel"}
ray.shutdown()
