"""pandas: write_deltalake of data frames with its modes and schema merge, to_pandas, MERGE, and time travel."""

import json
import sys

import pandas as pd
from deltalake import DeltaTable, write_deltalake

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, place = f"{lake}/towns", {"storage_options": options}
towns = pd.DataFrame({"id": [1, 2, 3], "town name": ["Ulm", "Bonn", None], "at": pd.Timestamp("2026-11-27", tz="UTC")})
write_deltalake(uri, towns, **place)
write_deltalake(uri, towns.head(1).assign(id=4, size=9.5), mode="append", schema_mode="merge", **place)
table = DeltaTable(uri, **place)
found = table.to_pandas().sort_values("id", ignore_index=True)
assert found["id"].tolist() == [1, 2, 3, 4]
assert found["town name"].isna().tolist() == [False, False, True, False]
assert found["size"].tolist()[3] == 9.5
assert str(found["at"].dt.tz) == "UTC"
assert DeltaTable(uri, version=0, **place).to_pandas()["id"].tolist() == [1, 2, 3]

changes = pd.DataFrame({"id": [3, 5], "town name": ["Kiel", "Jena"]})
metrics = (
    table.merge(changes, "s.id = t.id", source_alias="s", target_alias="t")
    .when_matched_update({"town name": 's."town name"'})
    .when_not_matched_insert({"id": "s.id", '"town name"': 's."town name"'})
    .execute()
)
assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (1, 1)
table.delete("id = 1")
found = table.to_pandas(columns=["id", "town name"], filters=[("id", ">", 2)]).sort_values("id")
assert found["town name"].tolist() == ["Kiel", "Ulm", "Jena"]
write_deltalake(uri, towns, mode="overwrite", schema_mode="overwrite", **place)
assert DeltaTable(uri, **place).to_pandas().shape == (3, 3)
