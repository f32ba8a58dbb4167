"""Ray Data: write_delta with its modes, partitions and a new column, and read_delta with a version."""

import json
import sys

import ray
from ray.data import SaveMode

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, parted, place = f"{lake}/towns", f"{lake}/parted", {"storage_options": options}


def ids(uri, **options):
    return sorted(row["id"] for row in ray.data.read_delta(uri, **place, **options).take_all())


# Strings of pandas 3 are large ones, which Ray does not append to the table that it has made of such.
towns = ray.data.from_items([{"id": 1, "town": "Ulm"}, {"id": 2, "town": "Bonn"}, {"id": 3, "town": "Kiel"}])
towns.write_delta(uri, name="towns", **place)
towns.map(lambda row: {**row, "id": row["id"] + 3, "size": 9.5}).write_delta(uri, **place)
assert ids(uri) == [1, 2, 3, 4, 5, 6]
assert ids(uri, version=0) == [1, 2, 3]
sizes = [row["size"] for row in ray.data.read_delta(uri, columns=["size"], **place).take_all()]
assert sorted(sizes, key=str) == [9.5] * 3 + [None] * 3
towns.write_delta(uri, mode=SaveMode.OVERWRITE, **place)
assert ids(uri) == [1, 2, 3]
towns.write_delta(parted, partition_by=["town"], **place)
found = ray.data.read_delta(parted, **place).take_all()
assert {row["id"]: row["town"] for row in found} == {
    1: "Ulm",
    2: "Bonn",
    3: "Kiel",
}
ray.shutdown()
