#!/usr/bin/env bash
# DuckLake: a DELETE that commits beside ducklake_merge_adjacent_files is lost, in either order of the commits.
#
# A good guess: the row is deleted, since the DELETE committed, or the later one of the two is refused, as it is with
# DATA_INLINING_ROW_LIMIT 0. Instead, by default, both commit, and the row is there.
# Seen with duckdb 1.5.5 on 2026-11-28 and 2026-11-29. duckdb 2.0.1 was not tried: its extension ducklake could not be
# fetched. More: docs/findings/ducklake-merge-files.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install duckdb==1.5.5 duckdb-extensions==1.5.5 duckdb-extension-ducklake==1.5.5

expect <<'END'
duckdb 1.5.5
defaults
  the DELETE over the merge: committed; expected 39 rows without 3, found 40 rows, 1 x 3
  the merge over the DELETE: committed; expected 39 rows without 3, found 40 rows, 1 x 3
DATA_INLINING_ROW_LIMIT 0
  the DELETE over the merge: refused, TransactionException; expected 40 rows, found 40 rows, 1 x 3
  the merge over the DELETE: refused, TransactionException; expected 39 rows without 3, found 39 rows, 0 x 3
END

run <<'PYTHON'
import tempfile

import duckdb
from duckdb_extensions import import_extension

DELETE = "DELETE FROM lake.t WHERE id = 3"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"


def beside(winner, loser, options=""):
    """The loser begins and runs, the winner commits, the loser commits: how it ended, and the rows that are left."""
    folder = tempfile.mkdtemp()
    connection = duckdb.connect()
    import_extension("ducklake", con=connection)
    connection.load_extension("ducklake")
    connection.execute(f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS lake (DATA_PATH '{folder}/data'{options})")
    connection.execute("CREATE TABLE lake.t (id BIGINT)")
    for start in (0, 20):
        connection.execute(f"INSERT INTO lake.t SELECT * FROM range({start}, {start + 20})")
    other = connection.cursor()
    other.execute("BEGIN")
    other.execute(loser).fetchall()
    connection.execute(winner).fetchall()
    try:
        other.execute("COMMIT")
        ended = "committed"
    except duckdb.Error as error:
        ended = f"refused, {type(error).__name__}"
    return ended, connection.execute("SELECT count(*), count(*) FILTER (id = 3) FROM lake.t").fetchone()


print("duckdb", duckdb.__version__)
for name, options in (("defaults", ""), ("DATA_INLINING_ROW_LIMIT 0", ", DATA_INLINING_ROW_LIMIT 0")):
    print(name)
    ended, (rows, deleted) = beside(MERGE, DELETE, options)
    expected = "39 rows without 3" if ended == "committed" else "40 rows"
    print(f"  the DELETE over the merge: {ended}; expected {expected}, found {rows} rows, {deleted} x 3")
    ended, (rows, deleted) = beside(DELETE, MERGE, options)
    print(f"  the merge over the DELETE: {ended}; expected 39 rows without 3, found {rows} rows, {deleted} x 3")
PYTHON
