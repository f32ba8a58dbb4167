"""The habits of an open project that files hold: hooks, the workflow, the release checklist, the list of targets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from refdelta.cli.app import app
from searches import SEARCHES

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
RELEASING = (ROOT / "docs" / "releasing.md").read_text()


def recipe(target):
    """The lines of a target."""
    return re.search(rf"^{target}:.*\n((?:\t.*\n?)+)", MAKEFILE, re.MULTILINE)[1].replace("$(BIN)", ".venv/bin")


def groups():
    """The targets of each group, from what `make help` prints."""
    shown = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^(?!  )(\S.*)$", shown, flags=re.MULTILINE)
    return {
        title: re.findall(r"^  make ([a-z0-9-]+)\s+\S", body, re.MULTILINE)
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_make_help_lists_every_target_once_and_in_a_group():
    listed = [target for targets in groups().values() for target in targets]
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert sorted(listed) == sorted(phony)
    assert "" not in groups()


def test_make_lint_runs_the_hooks_before_a_commit_by_programs_that_make_setup_installs():
    assert recipe("lint").strip().startswith(".venv/bin/pre-commit run --all-files")
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in local["hooks"]:
        folder, _, program = hook["entry"].split()[0].rpartition("/")
        assert (folder, hook["language"]) == (".venv/bin", "system")
        assert (Path(sys.executable).parent / program).is_file(), program


def test_the_workflow_runs_the_gate_with_what_it_needs():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["run"]["steps"]
    assert steps[-1] == {"run": ".ci/run"}
    versions = {name: value for step in steps for name, value in step.get("with", {}).items() if "version" in name}
    assert versions == {"python-version": "3.11", "java-version": "17", "go-version": "stable", "node-version": "lts/*"}


def test_the_nightly_workflow_has_every_part_once():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    assert workflow[True]["schedule"]  # YAML reads `on` as true
    named = " ".join(workflow["jobs"]["run"]["strategy"]["matrix"]["parts"]).split()
    listed = subprocess.run(
        [sys.executable, ROOT / ".ci" / "nightly.py", "--list"], capture_output=True, text=True, check=True
    ).stdout
    assert sorted({*named}) == sorted(line.split()[0] for line in listed.splitlines())
    assert all(named.count(name) == 1 for name in {*named} - {"servers"})


def test_the_release_checklist_has_every_search_that_no_night_runs():
    left = {name for name, search in SEARCHES.items() if search.nightly is None} - ON_NO_LIST
    assert left <= set(re.findall(r"make search NAME=([a-z-]+)", RELEASING))


# What they do is in the tests that run every night, or is written into a page that a test compares.
ON_NO_LIST = {"verify", "serial", "precision", "precision-spark"}


def test_every_target_of_the_release_checklist_is_there():
    known = {target for targets in groups().values() for target in targets}
    assert set(re.findall(r"`make ([a-z0-9-]+)", RELEASING)) <= known


def test_contributing_names_commands_and_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipes = text.partition("## Debugging\n")[2].partition("\n## ")[0]
    commands = set(re.findall(r"`refdelta ([a-z]+) ", recipes))
    assert (
        {"why", "timeline", "conflicts", "log", "verify", "read", "diff", "crosscheck"} <= commands <= set(app.commands)
    )
    for place in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text):
        assert any((folder / place).exists() for folder in (ROOT, ROOT / "refdelta")), place
