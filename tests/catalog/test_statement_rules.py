"""Each rule of the statements and waits of ``SqlCatalog`` is found again by their tests when it is left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SQL, BASE = "refdelta/catalog/sql.py", "refdelta/catalog/base.py"
DATABASE = "refdelta/catalog/database.py"
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
WAITS, ISOLATION = "tests/catalog/test_waits.py", "tests/catalog/test_isolation.py"
LEFT_OUT_OF_WAITS = {
    "opening writes where there are no tables": (
        *(WAITS, SQL, "if not versions:\n            with", "if True:\n            with"),
    ),
    "the log of changes is not left out": (WAITS, DATABASE, "            if state[-1]:\n", "            if False:\n"),
    "a connection to a frozen file is for one statement": (
        *(WAITS, DATABASE, "            record.invalidate()\n", "            pass\n"),
    ),
    "a frozen file is looked at again": (WAITS, SQL, "if not database.was_stable(connection):", "if False:"),
    "a file in a frozen folder is read": (WAITS, DATABASE, '    "SQLITE_READONLY_DIRECTORY",\n', ""),
    "to read takes no lock": (WAITS, DATABASE, "if not connection.get_execution_options().get(_READS):", "if True:"),
    "secrets are not shown": (WAITS, DATABASE, "url.difference_update_query(secret).render", "url.render"),
    "a newer version is refused": (WAITS, SQL, "if versions and max(versions) > SCHEMA_VERSION:", "if False:"),
    "the pool has an end": (WAITS, DATABASE, "timeout}, pool_timeout=timeout)", "timeout}, pool_timeout=40)"),
    "a transaction is repeated": (ISOLATION, SQL, "database.is_repeatable(error) and attempt < _TRIES:", "False:"),
}  # fmt: skip


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_missed(rule, tmp_path):
    assert "FAILED" in without(*LEFT_OUT[rule], "tests/catalog/test_statements.py", tmp_path)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("rule", LEFT_OUT_OF_WAITS)
def test_a_rule_of_waits_that_is_left_out_is_missed(rule, tmp_path):
    tests, *rest = LEFT_OUT_OF_WAITS[rule]
    assert "FAILED" in without(*rest, tests, tmp_path)


def without(file, text, other, tests, folder):
    """The report of tests over a copy of the project in which a text of a file is another one."""
    for part in ("refdelta", "storage", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    code = (folder / file).read_text()
    assert code.count(text) == 1
    (folder / file).write_text(code.replace(text, other))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tier", "check", "-p", "no:cacheprovider", tests]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'storage'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:]
    return done.stdout
