"""What README and guide show is what happens: Python runs, commands print what is shown, claims hold."""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refdelta.core.table.features import REGISTRY
from refdelta.crosscheck import oracle

ROOT = Path(__file__).parents[2]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
DOCUMENTS = [pytest.param(path, id=path.name) for path in (README, GUIDE)]
_WRITE = {"always": "yes", "inactive": "unless in use", "never": "no"}


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("document", "printed"), [(README, "files-added"), (GUIDE, "carier")])
def test_the_python_runs(tmp_path, monkeypatch, document, printed):
    monkeypatch.chdir(tmp_path)
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as found:
        for number, block in enumerate(blocks(document, "python")):
            exec(compile(block, f"{document.name}, python block {number}", "exec"), names)
    assert printed in found.getvalue()


@pytest.mark.tier("all")
@pytest.mark.spark(apart=True)
def test_the_example_on_spark_runs(tmp_path):
    if missing := oracle.availability():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    program = tmp_path / "example.py"
    (example,) = blocks(GUIDE, "py")
    program.write_text(example)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def commands():
    """The commands of the console blocks, of the README and then of the guide, each with what is shown below it."""
    for block in [*blocks(README, "console"), *blocks(GUIDE, "console")]:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


@pytest.mark.tier("test")
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
    found = re.findall(r"^\| `(\w+)` \| (yes|no) \| (.*?) \| (.+?) \|$", README.read_text(), re.MULTILINE)
    rows, written = ({name: row[at] for name, *row in found} for at in (0, 1))
    assert set(rows) >= {"deletionVectors", "columnMapping", "variantType", "rowTracking"}
    assert rows == {name: "yes" if REGISTRY[name].read else "no" for name in rows}
    assert written == {name: _WRITE[REGISTRY[name].write] for name in rows}


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"make ([a-z0-9-]+)\b", README.read_text() + GUIDE.read_text())) - {"alone"})
)
def test_make_has_every_target_that_it_names(target):
    listed = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target}\s+\S", listed, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_heading_that_it_links_to_is_there(document):
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text())
    assert links
    for link in links:
        path, _, heading = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def headings(document):
    """The names of a document's headings, as they are linked to."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
