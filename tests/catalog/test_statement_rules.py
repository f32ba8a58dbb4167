"""Each rule of the statements of ``SqlCatalog`` is found again by the tests of statements when it is left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SQL, BASE = "refdelta/catalog/sql.py", "refdelta/catalog/base.py"
BY_ID = "TABLES.c.id == entry.table_id"
BY_NAME = "TABLES.c.name == entry.name"
DROP = f"sa.delete(TABLES).where({BY_ID}, TABLES.c.latest <= _SEALED - _CREATING)"
ACTIVATE = f"sa.update(TABLES).where({BY_ID}, TABLES.c.latest == _CREATING)"
RELEASE = f"sa.delete(TABLES).where({BY_ID}, TABLES.c.latest == _CREATING)"
UNSEAL = f"{BY_ID}, latest <= _SEALED - _CREATING, latest > _PURGED - _CREATING"
SEALS = "            sealed = self._seal(entry, purge=purge)\n"
EARLY = "            if not purge and entry.managed: self._publish_sealed(entry, store)\n"
PUBLISHES = "if entry.managed and sealed:\n                    self._publish"
TAKEN = "if lost is not None and done(self._by_id(entry)):"
DONE = "            if not purge:\n                self._drop(entry)\n                return\n"

LEFT_OUT = {
    "a row count is looked at": (SQL, "if connection.execute(statements[0]).rowcount == 0:", "if False:"),
    "the row count of a proposal is looked at": (SQL, "is_next = moved.rowcount == 1", "is_next = True"),
    "a rename is by id": (SQL, f"{BY_ID}, {BY_NAME})", f"{BY_NAME})"),
    "a drop is by id": (SQL, DROP, f"sa.delete(TABLES).where({BY_NAME})"),
    "a drop is of a sealed row": (SQL, DROP, f"sa.delete(TABLES).where({BY_ID})"),
    "an activation is by id": (SQL, ACTIVATE, ACTIVATE.replace(BY_ID, BY_NAME)),
    "a release is by id": (SQL, RELEASE, f"sa.delete(TABLES).where({BY_NAME})"),
    "a seal is by id": (SQL, f"{BY_ID}, latest > (_PURGED", f"{BY_NAME}, latest > (_PURGED"),
    "an unsealing is by id": (SQL, UNSEAL, UNSEAL.replace(BY_ID, BY_NAME)),
    "the seal comes before the publication": (BASE, SEALS, EARLY + SEALS + DONE),
    "a drop publishes": (BASE, PUBLISHES, PUBLISHES.replace("entry.managed and sealed", "False")),
    "a taken name may be taken by this statement": (SQL, TAKEN, "if False:"),
    "a taken name may be taken by another one": (SQL, TAKEN, "if lost is not None:"),
    "a statement is repeated": (SQL, "_TRIES = 3", "_TRIES = 1"),
    "a drop removes the held commits": (SQL, "entry, [change, held], lambda", "entry, [change], lambda"),
}  # fmt: skip


@pytest.mark.tier("all")
@pytest.mark.sample(all=3)
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_missed(rule, tmp_path):
    file, text, other = LEFT_OUT[rule]
    for folder in ("refdelta", "storage", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code = (tmp_path / file).read_text()
    assert code.count(text) == 1
    (tmp_path / file).write_text(code.replace(text, other))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tier", "check", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/catalog/test_statements.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{tmp_path / 'storage'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert "FAILED" in done.stdout
