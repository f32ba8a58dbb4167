#!/usr/bin/env bash
# pyarrow: a Parquet file with a VARIANT column that is read and written again has no VARIANT column any more.
#
# A good guess: pyarrow keeps the type, or refuses it. Instead it reads a struct, without a word, and writes one: the
# annotation is gone, and the next reader gets a struct of binaries. In this struct `value` is null in every row, since
# DuckDB shreds by default and the values are in `typed_value`: a reader that takes the pair of metadata and value for
# the variant sees nulls.
# Seen with pyarrow 26.0.1 and duckdb 2.0.1 on 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install duckdb==2.0.1 pyarrow==26.0.1

expect <<'END'
DuckDB's file: Variant annotation True, DuckDB reads [('VARIANT', '{"a":0}'), ('VARIANT', '{"a":1}')]
pyarrow reads: struct of ['metadata', 'value', 'typed_value'], value [None, None]
written again: Variant annotation False, DuckDB reads a STRUCT True
END

run <<'PYTHON'
import duckdb
import pyarrow.parquet as pq


def annotated(file):
    """True if the schema of the file has a VARIANT."""
    return "Variant" in str(pq.ParquetFile(file).schema)


connection = duckdb.connect()
connection.execute("COPY (SELECT {'a': i}::VARIANT AS v FROM range(2) t(i)) TO 'first.parquet'")
rows = connection.execute("SELECT typeof(v), v::JSON::VARCHAR FROM 'first.parquet'").fetchall()
print(f"DuckDB's file: Variant annotation {annotated('first.parquet')}, DuckDB reads {rows}")

table = pq.read_table("first.parquet")
kind, values = table.schema.field("v").type, [row["value"] for row in table["v"].to_pylist()]
print(f"pyarrow reads: struct of {[field.name for field in kind]}, value {values}")

pq.write_table(table, "second.parquet")
[name] = connection.execute("SELECT DISTINCT typeof(v) FROM 'second.parquet'").fetchone()
print(f"written again: Variant annotation {annotated('second.parquet')}, DuckDB reads a STRUCT {'STRUCT' in name}")
PYTHON
