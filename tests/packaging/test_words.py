"""The search for habits of writing, .ci/words.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from by_path import loaded

ROOT = Path(__file__).parents[2]
words = loaded(ROOT / ".ci" / "words.py")


def found(source, path="x.py"):
    return [(one.line, one.habit.name) for one in words.findings(path, source)]


def habit(sentence):
    return [name for _, name in found(sentence, "x.md")]


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("The rows of the writer who came first.", "who without a person"),
        ("Whoever reads it, pays.", "who without a person"),
        ("Files behind the first are not read.", "behind"),
        ("It is told before.", "told"),
        ("There is no telling.", "told"),
        ("By this they are told apart.", "told"),
        ("The id tells the two files apart.", "tell apart"),
        ("It tells one from another.", "tell apart"),
        ("Nobody waits for it.", "nobody"),
        ("The value is stored as it is.", "as it is"),
        ("Merged so far as that can be known.", "so far as"),
        ("The name of columns of tables of clones is kept.", "three of in a row"),
        ("The result says what becomes of them.", "becomes of"),
        ("The value is a text.", "a text"),
        ("Names are texts.", "a text"),
        ("What a commit says of itself is kept.", "what as the subject of a sentence"),
        ("But for the last, files are full.", "the exception first"),
        ("A string, a number or whatever.", "or whatever"),
    ],
)
def test_each_habit_is_found(sentence, name):
    assert name in habit(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "For users who do not know Spark.",
        "A caller who waits gets the version.",
        "What is a commit?",
        "# What it promises",
        "What if the store loses a reply?",
        "The file whose name is the version.",
        "It is written as it is described in PROTOCOL.md.",
        "The text of the error is a line.",
        "`told` and `who` are names in code.",
        "The name of the column of a table.",
        "```\nwho told nobody\n```",
    ],
)
def test_plain_sentences_are_passed_over(sentence):
    assert habit(sentence) == []


def test_in_python_it_is_found_in_docstrings_comments_and_messages_at_their_lines():
    source = '''"""What a module has."""
# Nobody
# waits.
def f() -> bool:
    """Whether it holds.

    The rest
    is behind it.
    """
    raise ValueError(f"{f} must be " "told")
def g() -> int:
    """Whether it holds, as a number."""
    told = "who"
    return 1  # as it is
'''
    opening = "a docstring that opens with a question word"
    assert found(source) == [
        (1, opening),
        (2, "nobody"),
        (8, "behind"),
        (10, "told"),
        (12, opening),
        (13, "who without a person"),
        (14, "as it is"),
    ]


def test_a_habit_is_found_across_a_line_break_and_not_across_a_blank_line():
    assert found('"""It\n\nThe first so\nfar as known."""\n') == [(3, "so far as")]
    assert found('"""So\n\nfar as known."""\n') == []


def test_a_file_with_more_findings_than_allowed_and_an_allowance_that_is_too_large_both_fail():
    counts = Counter({"a.py": 2, "b.py": 1, "c.py": 3})
    wrong = words.verdicts(counts, {"a.py": 1, "b.py": 1, "c.py": 4, "d.py": 1})
    assert [line.split(":")[0] for line in wrong] == ["a.py", "c.py", "d.py"]
    assert words.verdicts(counts, dict(counts)) == []


def test_allowances_are_written_anew_only_where_they_become_fewer(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("Nobody.\n\nNobody.\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "ALLOWANCES", tmp_path / "words.txt")
    assert words.main(["--write"]) == 0
    assert words.read_allowances((tmp_path / "words.txt").read_text()) == {"README.md": 2}
    assert words.main([]) == 0
    (tmp_path / "README.md").write_text("Nobody.\n\nNobody.\n\nNobody.\n")
    assert (words.main([]), words.main(["--write"])) == (1, 1)
    (tmp_path / "README.md").write_text("Nobody.\n")
    assert (words.main([]), words.main(["--write"]), words.main([])) == (1, 0, 0)
    assert words.read_allowances((tmp_path / "words.txt").read_text()) == {"README.md": 1}
