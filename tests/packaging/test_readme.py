"""What the README shows is what happens: its Python runs, its commands print what it says, its claims hold."""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refdelta.protocol.features import REGISTRY
from refdelta.spark import oracle

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
_WRITE = {"always": "yes", "inactive": "unless in use", "never": "no"}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for number, block in enumerate(blocks("python")):
            exec(compile(block, f"README.md, python block {number}", "exec"), names)
    assert "carier" in printed.getvalue()


@pytest.mark.spark(apart=True)
def test_the_example_on_spark_runs(tmp_path):
    if missing := oracle.availability():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    program = tmp_path / "example.py"
    (example,) = blocks("py")
    program.write_text(example)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def commands():
    """The commands of the console blocks, each with what is shown below it."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def test_the_commands_print_what_it_says(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name != "REFDELTA_DEBUG"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    checker = doctest.OutputChecker()
    found = list(commands())
    assert found
    for command, shown in found:
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**clean, "PATH": path, "PYTHONUTF8": "1"},
        )
        printed = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
        assert checker.check_output(shown, printed, doctest.ELLIPSIS), f"$ {command}\n{printed}"


def test_the_table_of_features_is_the_registry():
    rows = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \| .*\|$", README, re.MULTILINE))
    written = dict(re.findall(r"^\| `(\w+)` \| (?:yes|no) \| (.*?) \|$", README, re.MULTILINE))
    assert set(rows) >= {"deletionVectors", "columnMapping", "variantType", "rowTracking"}
    assert rows == {name: "yes" if REGISTRY[name].read else "no" for name in rows}
    assert written == {name: _WRITE[REGISTRY[name].write] for name in rows}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z0-9-]+)\b", README)) - {"alone"}))
def test_make_has_every_target_that_it_names(target):
    listed = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target}\s+\S", listed, re.MULTILINE)


def test_every_file_and_heading_that_it_links_to_is_there():
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    assert [link for link in links if not link.startswith("#") and not (ROOT / link).exists()] == []
    headings = {"#" + title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", README, re.MULTILINE)}
    assert {link for link in links if link.startswith("#")} <= headings
