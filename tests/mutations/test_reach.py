"""The note of which tests reach a mutation: where its call stands, and what it writes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mutations import reach
from mutations.sites import in_text

SOURCE = '''
"""A module."""
from __future__ import annotations

LIMIT = (1 < 2)


def sign(number):
    """The sign."""
    if number > 0:
        return 1
    elif number < 0:
        return -1
    elif number == 0:
        for _ in range(3):
            if number is None:
                raise ValueError
    return 0
'''


@pytest.fixture
def project(tmp_path):
    """A project of one module, and the mutations of its comparisons by the lines where they are."""
    for folder in ("refdelta", "storage/refdelta_storage"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "refdelta" / "signs.py").write_text(SOURCE)
    found = [one for one in in_text("refdelta/signs.py", SOURCE) if one.kind == "comparison"]
    return tmp_path, {one.line: one for one in found}


def test_each_test_is_noted_once_with_the_places_that_it_reaches(project):
    root, by_line = project
    assert reach.instrument(root, by_line) == {5}, "the one that runs at the import of the module"
    note = root / "reached"
    for test, numbers in (("a::positive", "1, 2, 1"), ("a::zero", "0")):
        subprocess.run(
            [sys.executable, "-c", f"from refdelta.signs import sign; print([sign(n) for n in ({numbers},)])"],
            cwd=root,
            env={
                **os.environ,
                "PYTHONPATH": str(root),
                reach.VARIABLE: str(note),
                "PYTEST_CURRENT_TEST": f"{test} (call)",
            },
            check=True,
            timeout=120,
        )
    # A condition of an `elif` is reached with the `if`, since no statement can stand before it.
    both = ["a::positive", "a::zero"]
    assert reach.read(note) == {10: both, 12: both, 14: both, 16: ["a::zero"]}


def test_a_name_is_without_the_group_of_its_worker(tmp_path):
    note = tmp_path / "reached"
    note.write_text("3\ta.py::one@spark\n3\ta.py::two[x@y]@site\n3\ta.py::two[x@y]\n4\t\n")
    assert reach.read(note) == {3: ["a.py::one", "a.py::two[x@y]"]}


def test_the_code_does_the_same_with_the_notes(project):
    root, by_line = project
    reach.instrument(root, by_line)
    code = "from refdelta.signs import sign; print([sign(n) for n in (-2, 0, 5)], sign.__doc__)"
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[-1, 0, 1] The sign.\n"
