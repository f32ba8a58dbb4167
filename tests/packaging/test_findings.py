"""The scripts in ``findings``, without running them: their list, and the frame that all of them use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FINDINGS = Path(__file__).parents[2] / "findings"
SCRIPTS = sorted(path.name for path in FINDINGS.glob("*.sh") if path.name != "lib.sh")
FRAME = f"""#!/usr/bin/env bash
set -euo pipefail
. {FINDINGS}/lib.sh
mkdir -p "$folder/venv/bin"
ln -s {sys.executable} "$folder/venv/bin/python"
expect <<'END'
seen before
END
run <<'PYTHON'
%s
PYTHON
"""


def played(tmp_path: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A finding with this program, on the interpreter of the tests."""
    script = tmp_path / "some-finding.sh"
    script.write_text(FRAME % program)
    command = ["bash", str(script)]
    given = {**os.environ, "TMPDIR": str(tmp_path), **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=given)


def test_the_page_lists_every_script_once() -> None:
    listed = re.findall(r"^\| \[([\w-]+\.sh)\]\(([\w-]+\.sh)\) ", (FINDINGS / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in listed) == SCRIPTS
    assert all(name == target for name, target in listed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_run_by_its_name_and_pins_its_packages(name: str) -> None:
    assert os.access(FINDINGS / name, os.X_OK)
    subprocess.run(["bash", "-n", str(FINDINGS / name)], check=True)
    text = (FINDINGS / name).read_text()
    [program] = re.findall(r"<<'PYTHON'\n(.*)\nPYTHON\n", text, re.DOTALL)
    compile(program, name, "exec")
    [installed] = re.findall(r"^(install(?:_spark)?)\b(.*)$", text, re.MULTILINE)
    assert installed[0] == "install_spark" or "==" in installed[1]
    assert "refdelta" not in program
    assert re.search(r"Seen with .*\b20\d\d-\d\d-\d\d", text.partition("\nset -euo")[0].replace("\n# ", " "))


@pytest.mark.tier("test")
def test_the_same_output_passes_and_another_one_fails(tmp_path: Path) -> None:
    same = played(tmp_path, "print('seen before')")
    assert (same.returncode, same.stdout, same.stderr) == (0, "seen before\n", "")
    other = played(tmp_path, "print('seen now')")
    assert other.returncode == 1
    assert "> seen now" in other.stdout
    assert other.stderr.startswith("some-finding: changed: ")
    broken = played(tmp_path, "print('seen before'); raise SystemExit('no such function')")
    assert broken.returncode == 1
    assert broken.stderr.endswith("some-finding: changed: the program failed\n")
    assert "no such function" in broken.stderr
    assert sorted(tmp_path.iterdir()) == [tmp_path / "some-finding.sh"]


def test_the_settings_of_the_user_stay_out(tmp_path: Path) -> None:
    program = """
import os, pathlib, sys
home, folder = pathlib.Path.home(), pathlib.Path(sys.argv[0]).parent
left = [name for name in os.environ if name.startswith(("AWS_", "PYTHON"))]
print("seen before" if (home, pathlib.Path.cwd().parent, left) == (folder, folder, []) else left)
"""
    settings = {"AWS_SECRET_ACCESS_KEY": "secret", "PYTHONPATH": str(tmp_path)}
    assert played(tmp_path, program, **settings).returncode == 0


def test_a_finding_that_cannot_be_run_is_told_from_a_change(tmp_path: Path) -> None:
    said = played(tmp_path, "raise SystemExit(':: unresolved dependency: some#jar;1.0: not found')")
    assert (said.returncode, said.stderr) == (2, "some-finding: not run: the JARs could not be fetched\n")
    missing = subprocess.run([str(FINDINGS / "run"), "missing"], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (2, "findings/missing.sh does not exist\n")
