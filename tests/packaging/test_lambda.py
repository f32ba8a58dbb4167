"""The recipe of docs/guide/aws-lambda.md: what it removes from the installed packages is not needed."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import refdelta
import refdelta_storage

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "aws-lambda.md"
PACKAGES = ["numpy", "pyarrow", "fsspec", "msgspec", "pyroaring", "sqlglot"]
PROGRAM = """
import sys
import pyarrow as pa
from refdelta import DeltaTable, write_deltalake

uri = sys.argv[1]
rows = pa.table({"id": [1, 2, 3], "town": ["Oslo", "Rome", "Bern"]})
write_deltalake(uri, rows, configuration={"delta.enableDeletionVectors": "true"})
write_deltalake(uri, pa.table({"id": [4], "town": ["Riga"]}), mode="append")
table = DeltaTable(uri)
table.delete("id = 2")
source = pa.table({"id": [4, 5], "town": ["Kyiv", "Lima"]})
merge = table.merge(source, "target.id = source.id", source_alias="source", target_alias="target")
merge.when_matched_update_all().when_not_matched_insert_all().execute()
table.create_checkpoint()
table.optimize.compact()
assert DeltaTable(uri).to_pyarrow_table(filters="town <> 'Bern'").sort_by("id")["id"].to_pylist() == [1, 4, 5]
folder = sys.argv[2]
assert all(name.__file__.startswith(folder) for name in (pa, sys.modules["numpy"], sys.modules["refdelta"]))
"""


@pytest.mark.tier("test")
@pytest.mark.skipif(sys.platform != "linux", reason="the recipe is for packages of Linux")
def test_what_the_recipe_removes_is_not_needed(tmp_path):
    package = tmp_path / "package"
    for name in PACKAGES:
        for file in distribution(name).files or ():
            if ".." in file.parts or file.suffix == ".pyc":
                continue
            target = package / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)
    for ours in (refdelta, refdelta_storage):
        folder = Path(ours.__file__).parent
        shutil.copytree(folder, package / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    before = size(package)
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True)
    assert size(package) < 200e6 < before
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-S", "-c", PROGRAM, str(tmp_path / "table"), str(package)]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
