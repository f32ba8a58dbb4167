"""``.ci/walks.py`` counts the modules that a call goes through."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parents[2] / ".ci" / "walks.py"


def run(*arguments):
    done = subprocess.run([sys.executable, COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.tier("test")
def test_the_walk_of_each_call_has_the_modules_that_it_cannot_do_without():
    found = {name: set(call["modules"]) for name, call in json.loads(run("--json")).items()}
    committing = {"refdelta.core.commit.loop", "refdelta.engine.log.file_committer", "refdelta_storage.local"}
    assert found.keys() == {"append", "scan", "delete", "merge"}
    assert all(found[name] >= committing for name in ("append", "delete", "merge"))
    assert not found["scan"] & {"refdelta.core.commit.loop", "refdelta.transaction.transaction"}
    assert "refdelta.core.conflicts.rules" in found["delete"]  # there is a winner
    assert "refdelta.operations.merge.result" in found["merge"] - found["append"]


@pytest.mark.tier("test")
def test_one_walk_can_be_listed():
    first, *modules = run("--list", "scan").splitlines()
    assert first.startswith("scan ")
    assert any(line.split()[1] == "refdelta.engine.scan.scan" for line in modules)
