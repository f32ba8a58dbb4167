"""Every clause of the contracts has code and a test; the count notices one that has not."""

import pytest

from by_path import generator

spec_map = generator("spec_map")

REGISTER = """
## One
| id | clause | code | test |
|---|---|---|---|
| a-1 | covered | `code.py` | `tests.py::test_it`, `tests.py::test_more` |
| a-2 | for later | not yet | not yet |

## Two
| a-3 | {clause} |
"""
MORE_COLUMNS = "| b-1 | a promise | how it is kept | `code.py` | `tests.py::test_it` |\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "code.py").touch()
    (tmp_path / "tests.py").write_text(
        "def test_it(): ...\nclass Some:\n    def test_more(self): ...\ndef helper(): ...\n"
    )
    monkeypatch.setattr(spec_map, "REGISTERS", [tmp_path / "register.md"])
    monkeypatch.setattr(spec_map, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.tier("test")
def test_the_register_is_covered(capsys):
    assert spec_map.main() == 0
    counts = capsys.readouterr().out.splitlines()[-1].split()
    clauses, covered, later = map(int, counts[1:])
    assert counts[0] == "all"
    assert clauses == covered + later
    assert clauses > 240
    assert later < 70


def test_registers_may_have_more_columns(root, capsys, monkeypatch):
    (root / "register.md").write_text(REGISTER.format(clause="fine | `code.py` | `tests.py::test_it`"))
    (root / "more.md").write_text(MORE_COLUMNS)
    monkeypatch.setattr(spec_map, "REGISTERS", [root / "register.md", root / "more.md"])
    assert spec_map.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "4", "3", "1"]


def test_clauses_are_counted_by_section(root, capsys):
    (root / "register.md").write_text(REGISTER.format(clause="fine | `code.py` | `tests.py::test_it`"))
    assert spec_map.main() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [["One", "2", "1", "1"], ["Two", "1", "1", "0"], ["all", "3", "2", "1"]]


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("no test | `code.py` | ", "a-3: no test"),
        ("no code | | `tests.py::test_it`", "a-3: no code"),
        ("neither", "a-3: no code; no test"),
        ("gone | `gone.py` | `tests.py::test_it`", "gone.py does not exist"),
        ("renamed | `code.py` | `tests.py::test_other`", "tests.py::test_other does not exist"),
        ("a file only | `code.py` | `tests.py`", "tests.py names no test"),
        ("no test at all | `code.py` | `tests.py::helper`", "tests.py::helper names no test"),
        ("half | `code.py` | not yet", "announced for one column only"),
        (
            "again | `code.py` | `tests.py::test_it` |\n| a-1 | twice | `code.py` | `tests.py::test_it`",
            "a-1: occurs twice",
        ),
    ],
)
def test_an_uncovered_clause_is_named(root, capsys, clause, said):
    (root / "register.md").write_text(REGISTER.format(clause=clause))
    assert spec_map.main() == 1
    assert said in capsys.readouterr().out


def test_an_empty_register_is_no_register(root):
    (root / "register.md").write_text("# Nothing\n")
    assert spec_map.main() == 1
