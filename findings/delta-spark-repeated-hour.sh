#!/usr/bin/env bash
# delta-spark: a timestamp in the repeated hour at the end of summer time changes, if it is a partition value.
#
# A good guess: since partition values of timestamps are in UTC in the log, each moment comes back as it was. Instead the
# value is first a local time of the session, without an offset, and then UTC: of the two moments that a clock in Los
# Angeles shows as 01:30 the later one is stored, for good, as the earlier one. In a column that is no partition column
# both are right.
# Seen with delta-spark 4.4.0 on Spark 4.2.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install_spark

expect <<'END'
written: row 1 at 08:30 UTC, row 2 at 09:30 UTC
in a column: row 1 at 08:30 UTC, row 2 at 09:30 UTC
in a partition: row 1 at 08:30 UTC, row 2 at 08:30 UTC
in the log: ['2026-11-01T08:30:00.000000Z']
END

run <<'PYTHON'
import json
import tempfile
from pathlib import Path

from session import spark

folder = tempfile.mkdtemp()
spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
for name, partitions in (("column", ""), ("partition", "PARTITIONED BY (t)")):
    spark.sql(f"CREATE TABLE delta.`{folder}/{name}` (id INT, t TIMESTAMP) USING delta {partitions}")
    spark.sql(
        f"INSERT INTO delta.`{folder}/{name}` "
        "VALUES (1, TIMESTAMP'2026-11-01T08:30:00Z'), (2, TIMESTAMP'2026-11-01T09:30:00Z')"
    )
spark.conf.set("spark.sql.session.timeZone", "UTC")
print("written: row 1 at 08:30 UTC, row 2 at 09:30 UTC")
for name in ("column", "partition"):
    query = f"SELECT id, date_format(t, 'HH:mm') AS t FROM delta.`{folder}/{name}` ORDER BY id"
    print(f"in a {name}:", ", ".join(f"row {row.id} at {row.t} UTC" for row in spark.sql(query).collect()))
log = (Path(folder) / "partition/_delta_log" / f"{1:020}.json").read_text().splitlines()
adds = [action["add"] for action in map(json.loads, log) if "add" in action]
print("in the log:", sorted({add["partitionValues"]["t"] for add in adds}))
spark.stop()
PYTHON
