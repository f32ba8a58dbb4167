#!/usr/bin/env bash
# sqlglot: `t@v3`, a version of a Delta table in Databricks' SQL, is taken for an alias.
#
# A good guess: the dialect databricks understands the suffix as it does VERSION AS OF 3, or raises ParseError. Instead
# the table has no version, and an alias that is a parameter. The SQL that is written again is another statement, and
# a program that runs the tree reads the newest version.
# Seen with sqlglot 30.30.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install sqlglot==30.30.0

expect <<'END'
SELECT a FROM t VERSION AS OF 3
  version 3, alias None, written again SELECT a FROM t VERSION AS OF 3
SELECT a FROM t@v3
  version None, alias Parameter, written again SELECT a FROM t AS ${v3}
SELECT a FROM t@20261128000000000
  version None, alias Parameter, written again SELECT a FROM t AS ${20261128000000000}
END

run <<'PYTHON'
import sqlglot
from sqlglot import exp

for sql in ("SELECT a FROM t VERSION AS OF 3", "SELECT a FROM t@v3", "SELECT a FROM t@20261128000000000"):
    tree = sqlglot.parse_one(sql, dialect="databricks")
    table = tree.find(exp.Table)
    version, alias = table.args.get("version"), table.args.get("alias")
    kind = type(alias.this).__name__ if alias else None
    print(sql)
    print(
        f"  version {version and version.expression.sql()}, alias {kind}, "
        f"written again {tree.sql(dialect='databricks')}"
    )
PYTHON
