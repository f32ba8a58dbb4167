"""The README and the pages in docs show what happens: Python runs and prints what stands below it, so do commands."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

from by_path import generator, loaded
from refdelta.crosscheck import oracle
from refdelta.expressions.sql_reader import KNOWN
from refdelta.table.features import REGISTRY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *GUIDE]
EVERY = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
COMMANDS, FEATURES, SPARK = (DOCS / "guide" / f"{name}.md" for name in ("command-line", "features", "spark"))
reference = generator("reference")
page_blocks = loaded(Path(__file__).with_name("page_blocks.py"))
functions_page = generator("functions_page")
timeline = loaded(DOCS / "pictures" / "timeline.py")
two_writers = loaded(DOCS / "pictures" / "two_writers.py")
_WRITE = {"always": "yes", "inactive": "unless in use", "never": "no"}


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.tier("test")
@pytest.mark.sample(check=4)
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if "```python" in path.read_text()],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_python_runs_and_prints_what_stands_below_it(tmp_path, monkeypatch, document):
    monkeypatch.chdir(tmp_path)
    page_blocks.run_python(document)


def test_every_page_of_the_guide_is_run_or_is_known_to_have_no_python():
    without = {path.stem for path in GUIDE if not blocks(path, "python")}
    assert without == {"command-line", "other-libraries", "spark"}
    for page in (*GUIDE, DOCS / "tutorial.md"):
        assert len(page_blocks.PYTHON.findall(page.read_text())) == page.read_text().count("```python"), page


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
def test_the_example_on_spark_runs(tmp_path):
    if missing := oracle.availability():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    program = tmp_path / "example.py"
    (example,) = blocks(SPARK, "py")
    program.write_text(example)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_commands_are_shown_on_one_page_only():
    assert [path for path in DOCUMENTS if blocks(path, "console")] == [COMMANDS]
    commands = page_blocks.commands(COMMANDS)
    assert {command.split()[1] for command, _ in commands if command.startswith("refdelta ")} >= {
        *("write", "read", "history", "update", "delete", "optimize", "vacuum", "restore", "verify", "conflicts")
    }


@pytest.mark.tier("nightly")
def test_the_commands_print_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page_blocks.run_commands(COMMANDS)


def test_the_table_of_features_is_the_registry():
    found = re.findall(r"^\| `(\w+)` \| (yes|no) \| (.*?) \| (.+?) \|$", FEATURES.read_text(), re.MULTILINE)
    rows, written = ({name: row[at] for name, *row in found} for at in (0, 1))
    assert set(rows) >= {"deletionVectors", "columnMapping", "variantType", "rowTracking"}
    assert rows == {name: "yes" if REGISTRY[name].read else "no" for name in rows}
    assert written == {name: _WRITE[REGISTRY[name].write] for name in rows}


@pytest.mark.parametrize(
    "target",
    sorted({name for path in DOCUMENTS for name in re.findall(r"`(?:\w+=\S+ )?make ([a-z0-9-]+)\b", path.read_text())}),
)
def test_make_has_every_target_that_it_names(target):
    listed = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target}\s+\S", listed, re.MULTILINE)


@EVERY
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


@pytest.mark.tier("test")
def test_a_stranger_sees_two_writers_on_a_timeline(tmp_path):
    """What the README shows, in its order, by the interpreter and the commands of a set-up clone."""
    readme = ROOT / "README.md"
    (program,), (command,) = blocks(readme, "python"), blocks(readme, "sh")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for words in ([sys.executable, "-c", program], ["bash", "-c", command]):
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PATH": path}
        )
    expected = blocks(readme, "text")[-1]
    assert doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS), done.stdout


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text()
    for page in (*DOCS.rglob("*.md"), *(DOCS / "examples").rglob("*.py")):
        if page.name != "README.md":
            assert f"]({page.relative_to(DOCS).as_posix()})" in index, page


def test_the_picture_of_the_readme_is_the_one_that_is_drawn():
    drawn = two_writers.svg(two_writers.draw(), two_writers.TITLE)
    assert drawn == two_writers.svg(two_writers.draw(), two_writers.TITLE)
    words = re.compile(r"<text [^>]*>(.*?)</text>", re.DOTALL)
    assert words.findall(two_writers.PICTURE.read_text()) == words.findall(drawn), "run make generate NAME=pictures"
    assert f"]({two_writers.PICTURE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text()


@pytest.mark.tier("test")
def test_the_picture_of_a_timeline_is_the_one_that_is_drawn():
    assert timeline.draw() == timeline.PICTURE.read_text(), "run make generate NAME=pictures"


# --- the reference ---


@pytest.mark.tier("test")
def test_the_reference_is_what_the_code_says():
    assert reference.page() == reference.PAGE.read_text(), "run make generate NAME=reference"


@pytest.mark.tier("test")
def test_the_page_of_functions_is_what_the_code_says_and_has_every_name():
    assert functions_page.page() == functions_page.PAGE.read_text(), "run make generate NAME=reference"
    assert functions_page.names() == KNOWN


def test_the_reference_has_the_fields_of_options_that_signatures_do_not_spell_out():
    class Table:
        def delete(self, predicate=None, **options: "Unpack[Settings]"):  # noqa: F821 - found by its name
            """Delete rows. More words."""

    found = reference._Options([Table], [])
    assert reference.signature(Table.delete, method=True) == "(predicate=None, **options)"
    section = found.section()
    assert "## Settings" in section
    assert "| `level` | how strict. |" in section


class Settings(TypedDict, total=False):
    """The settings of a statement.

    Attributes:
        level: how strict.
    """

    level: str


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("A `~x`, e.g. b. Then", "A `~x`, e.g. b."),
        ("As :meth:`refdelta.DeltaTable.update` and :class:`~refdelta.errors.DeltaError`.", None),
    ],
)
def test_the_first_sentence_of_a_docstring(text, sentence):
    def function():
        pass

    function.__doc__ = text
    assert reference.first(function) == (sentence or "As `DeltaTable.update` and `DeltaError`.")
