"""Prose is wrapped at 100 columns."""

from pathlib import Path

import pytest

from by_path import loaded

ROOT = Path(__file__).parents[2]
wrap = loaded(ROOT / ".ci/wrap.py")
MADE = {"docs/reference.md", "docs/functions.md", "docs/guide/casts.md", "bench/figures.md"}
"""Pages that a program writes."""
PAGES = [
    path
    for folder in (".", "bench", "docs", "docs/decisions", "docs/guide", "spec_notes", "tests")
    for path in (ROOT / folder).glob("*.md")
    if path.relative_to(ROOT).as_posix() not in MADE
]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page):
    assert wrap.wrapped(page.read_text()) == page.read_text(), f"run python .ci/wrap.py {page.relative_to(ROOT)}"


def test_paragraphs_and_items_are_wrapped_and_nothing_else_changes():
    words = "some words of prose, " * 9
    kept = f"# A heading {words}\n\n| a | {words} |\n\n```text\n{words}\n```\n\n    {words}\n"
    assert wrap.wrapped(kept) == kept
    for text in (words.strip(), f"- {words.strip()}", f"12. {words.strip()}"):
        lines = wrap.wrapped(text).split("\n")
        assert max(map(len, lines)) <= wrap.COLUMNS
        assert " ".join(line.strip() for line in lines) == text
    assert wrap.wrapped(f"- {words}").split("\n")[1].startswith("  prose")


def test_code_and_links_are_not_broken():
    text = "word " * 18 + "`make bench-compare A=<commit> B=<commit>` and [a link](some/page.md)"
    assert "`make bench-compare A=<commit> B=<commit>`" in wrap.wrapped(text)


def test_a_page_that_differs_is_named(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("word " * 30)
    monkeypatch.setattr("sys.argv", ["wrap.py", "--check", str(page)])
    assert wrap.main() == 1
    assert capsys.readouterr().out == f"{page}\n"
    monkeypatch.setattr("sys.argv", ["wrap.py", str(page)])
    assert wrap.main() == 0
    assert page.read_text().count("\n") == 1
