#!/usr/bin/env bash
# delta-spark: a filter on a timestamp misses rows, if a date is generated from it and the sessions have two time zones.
#
# A good guess: a partition column `d DATE GENERATED ALWAYS AS (CAST(t AS DATE))` prunes partitions and never changes the
# answer. Instead the date is that of the time zone of the session that wrote the row, and the filter of a session in
# another zone is turned into its own date: the row is there, and a filter by its exact timestamp does not find it.
# Seen with delta-spark 4.4.0 on Spark 4.2.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install_spark

expect <<'END'
written in America/Los_Angeles, read in UTC: [('2026-06-01 02:00:00', '2026-05-31')]
where t = 2026-06-01T02:00:00Z: 0 rows
where t >= 2026-06-01T01:00:00Z: 0 rows
where t + INTERVAL 0 SECONDS = 2026-06-01T02:00:00Z: 1 rows
END

run <<'PYTHON'
import tempfile

from session import spark

table = f"delta.`{tempfile.mkdtemp()}/t`"
spark.sql(
    f"CREATE TABLE {table} (t TIMESTAMP, d DATE GENERATED ALWAYS AS (CAST(t AS DATE))) USING delta PARTITIONED BY (d)"
)
spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
spark.sql(f"INSERT INTO {table} (t) VALUES (TIMESTAMP'2026-06-01T02:00:00Z')")
spark.conf.set("spark.sql.session.timeZone", "UTC")
rows = spark.sql(f"SELECT string(t) AS t, string(d) AS d FROM {table}").collect()
print("written in America/Los_Angeles, read in UTC:", [tuple(row) for row in rows])
for column, comparison, text in (
    ("t", "=", "2026-06-01T02:00:00Z"),
    ("t", ">=", "2026-06-01T01:00:00Z"),
    ("t + INTERVAL 0 SECONDS", "=", "2026-06-01T02:00:00Z"),
):
    [row] = spark.sql(f"SELECT count(*) AS n FROM {table} WHERE {column} {comparison} TIMESTAMP'{text}'").collect()
    print(f"where {column} {comparison} {text}: {row.n} rows")
spark.stop()
PYTHON
