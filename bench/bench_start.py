"""How long it takes a new process to import an engine, to read a small table, and to append to it.

Every sample is a process of its own and counts from its start to its end, the interpreter's included: what a script
costs, a function of a cloud provider, a command. The files are in the page cache, and the modules are compiled: that
does the round that does not count, whatever the environment says of writing bytecode. The table has ten rows and one
commit; the rows that are appended come from an Arrow file, and all read into Arrow tables. pyiceberg reads an Iceberg
table of the same rows, by the file of its metadata, without a catalog.
pandas is installed: an engine that makes pyarrow look for it pays for that.

The floors: an interpreter that does nothing; one that imports pyarrow, reads the commit and the data file that it
names; one that imports pyarrow, writes a Parquet file and a commit, without fsync.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from contest import Engine, ahead
from pyiceberg.catalog.memory import InMemoryCatalog

import refdelta.api.writer

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "value": pa.array([0.5] * 10)})

IMPORT = {
    "refdelta": "from refdelta import DeltaTable",
    "deltalake": "from deltalake import DeltaTable",
    "pyiceberg": "from pyiceberg.table import StaticTable",
    "floor": "pass",
}

READ = {
    "refdelta": "import sys, refdelta\nt = refdelta.DeltaTable(sys.argv[1]).to_pyarrow_table()",
    "deltalake": "import sys, deltalake\nt = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()",
    "pyiceberg": "import sys\nfrom pyiceberg.table import StaticTable\n"
    "t = StaticTable.from_metadata(sys.argv[1]).scan().to_arrow()",
    "floor": """
import json, sys, pyarrow.parquet as pq
lines = map(json.loads, open(sys.argv[1] + "/_delta_log/00000000000000000000.json"))
t = pq.ParquetFile(sys.argv[1] + "/" + next(line["add"]["path"] for line in lines if "add" in line)).read()
""",
}

ROWS_OF = "import sys, pyarrow as pa\nrows = pa.ipc.open_file(sys.argv[2]).read_all()\n"
APPEND = {
    "refdelta": f"{ROWS_OF}import refdelta\n"
    'refdelta.write_deltalake(sys.argv[1], rows, mode="append", storage_options={"fsync": "false"})',
    "deltalake": f'{ROWS_OF}import deltalake\ndeltalake.write_deltalake(sys.argv[1], rows, mode="append")',
    "floor": f"""{ROWS_OF}
import json, os, pyarrow.parquet as pq
log = sys.argv[1] + "/_delta_log"
version = len([name for name in os.listdir(log) if name.endswith(".json")])
path = f"part-{{version}}.parquet"
pq.write_table(rows, sys.argv[1] + "/" + path)
size = os.path.getsize(sys.argv[1] + "/" + path)
add = {{"path": path, "partitionValues": {{}}, "size": size, "modificationTime": 0, "dataChange": True}}
with open(log + "/new", "w") as file:
    file.write(json.dumps({{"add": add}}) + "\\n")
os.link(log + "/new", f"{{log}}/{{version:020}}.json")
os.unlink(log + "/new")
""",
}

WORK = {"import": IMPORT, "first read": READ, "first append": APPEND}
CHECK = "\nassert t.num_rows == 10"


# A run is judged by this last word: the exit code also depends on threads of libraries that end with the interpreter.
DONE = "\nprint('done')"


@pytest.mark.parametrize("what", list(WORK))
def bench_start(contest, folder, what):
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": os.fspath(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = folder / "rows.arrow"
    with pa.ipc.new_file(rows, ROWS.schema) as sink:
        sink.write_table(ROWS)

    def engine(name: str) -> Engine:
        table = folder / name
        if name == "pyiceberg":
            table = _iceberg(table)
        else:
            (refdelta if name == "refdelta" else deltalake).write_deltalake(table, ROWS)
        code = WORK[what][name] + (CHECK if what == "first read" else "") + DONE

        def run() -> None:
            command = [sys.executable, "-c", code, table, rows]
            ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
            assert ended.stdout == b"done\n"

        check = partial(_appended, table) if what == "first append" else None
        return Engine(name, run, after=check, settings="no fsync" if what == "first append" else "a new process")

    goals = [ahead("deltalake"), ahead("pyiceberg")]  # those of engines that take part
    contest.run([engine(name) for name in WORK[what]], goals=goals, rounds=7, what=what)


def _iceberg(folder: Path) -> Path:
    """A table of Iceberg with the same rows. Returns where its metadata is."""
    folder.mkdir()
    catalog = InMemoryCatalog("bench", warehouse=os.fspath(folder))
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", schema=ROWS.schema)
    table.append(ROWS)
    return Path(table.metadata_location.removeprefix("file://"))


def _appended(table: Path, _: object) -> None:
    """Each run has made one commit more."""
    commits = len(list((table / "_delta_log").glob("*.json")))
    assert commits > 1
    marker = table / "commits"
    assert not marker.exists() or commits == int(marker.read_text()) + 1
    marker.write_text(str(commits))
