"""dlt: the filesystem destination with table_format="delta": append, replace, upsert, nested tables, a new column."""

import json
import sys
from pathlib import Path

import dlt
from dlt.common.configuration.specs import AwsCredentials
from dlt.common.libs.deltalake import get_delta_tables

lake, options = sys.argv[1], json.loads(sys.argv[2])
login = None
if options:
    login = AwsCredentials(
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region_name=options["AWS_REGION"],
        endpoint_url=options["AWS_ENDPOINT_URL"],
    )
pipeline = dlt.pipeline(
    "towns",
    destination=dlt.destinations.filesystem(lake if options else Path(lake).as_uri(), credentials=login),
    dataset_name="towns",
    pipelines_dir=str(Path("state").resolve()),
)


def rows(name, data, **options):
    pipeline.run(data, table_name=name, table_format="delta", **options)
    return get_delta_tables(pipeline, name)[name].to_pyarrow_table()


towns = [{"id": 1, "town": "Ulm", "parts": [1, 2]}, {"id": 2, "town": "Bonn", "parts": [3]}]
assert sorted(rows("towns", towns)["id"].to_pylist()) == [1, 2]
found = rows("towns", [{"id": 3, "town": "Kiel", "size": 9.5}])
assert sorted(found["size"].to_pylist(), key=str) == [9.5, None, None]
assert get_delta_tables(pipeline)["towns__parts"].count() == 3
assert rows("replaced", towns).num_rows == 2
assert rows("replaced", towns[:1], write_disposition="replace").num_rows == 1

upsert = {"disposition": "merge", "strategy": "upsert"}
rows("merged", towns, write_disposition=upsert, primary_key="id")
changes = [{"id": 2, "town": "Köln"}, {"id": 4, "town": "Jena"}]
found = rows("merged", changes, write_disposition=upsert, primary_key="id")
assert sorted(zip(found["id"].to_pylist(), found["town"].to_pylist(), strict=True)) == [
    (1, "Ulm"),
    (2, "Köln"),
    (4, "Jena"),
]

parted = [{"id": 1, "land": "BW"}, {"id": 2, "land": "NW"}]
rows("parted", parted, columns={"land": {"partition": True}})
assert get_delta_tables(pipeline, "parted")["parted"].metadata().partition_columns == ["land"]
