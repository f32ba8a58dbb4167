"""The notebooks run from their first cell to their last, and print what their text says."""

from __future__ import annotations

import html
import json
import re

import pytest

from docs_site.conftest import ROOT, run

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))

PRINTED = {
    "first-concurrent-writers": [
        "south: 2 after version (1,)",
        "[{'seat': 7, 'guest': 'Ada'}, {'seat': 8, 'guest': 'Grace'}]",
        "ConcurrentDeleteReadException\nrule: read-file-removed\nwinner: version 3 UPDATE",
        "{'seat': 9, 'guest': 'Edsger'},\n {'seat': 10, 'guest': 'Barbara'}",
        "one commit each: 8",
        ", versions 4 to 12: ",
    ],
    "reading-a-log": [
        "4 OPTIMIZE | passed [3]",
        "5 UPDATE | passed [] | ink was counted twice",
        "OPTIMIZE over 3 (",
        "3 11 rows; [(4, 0), (4, 0), (4, 1)]\n4 11 rows; [(12, 1)]",
        "commitInfo {'operation': 'DELETE', 'readVersion': 2, 'isolationLevel': 'WriteSerializable'}",
        "changed by the compaction: set()",
        "sound: versions 0 to 5",
    ],
}


def test_each_notebook_is_known():
    assert {path.stem for path in NOTEBOOKS} == set(PRINTED)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", PRINTED)
def test_a_notebook_prints_what_it_is_known_to(site, name):
    """The site has run it: an exception in a cell would have ended the build."""
    page = html.unescape(re.sub("<[^>]+>", "", (site / f"docs/notebooks/{name}.html").read_text()))
    for printed in PRINTED[name]:
        assert printed in page, printed


@pytest.mark.tier("nightly")
def test_a_notebook_that_raises_fails_the_build(tmp_path):
    notebook = json.loads(NOTEBOOKS[0].read_text())
    notebook["cells"] = [{**notebook["cells"][2], "source": ["1 / 0"]}]
    (tmp_path / "raises.ipynb").write_text(json.dumps(notebook))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(ROOT / "docs/notebooks/pages.py", tmp_path / "raises.ipynb")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_links_to_what_is_there(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert all(
        cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code"
    )
    text = "".join(line for cell in cells for line in cell["source"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert all((notebook.parent / link).exists() for link in links)
