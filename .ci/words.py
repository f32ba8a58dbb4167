"""Find habits of writing that make the text of the project hard to read.

Looks through the docstrings, comments and string literals of the Python code and through the Markdown documents.
`.ci/words.txt` allows each file as many findings as it had when it was last mended; the check fails for a file with
more of them, and for an allowance that is larger than needed, so that the allowances only shrink.

    python .ci/words.py                 check
    python .ci/words.py --all           print every finding
    python .ci/words.py refdelta/core   print the findings of these files and folders
    python .ci/words.py --write         write the allowances anew; refused where their sum would grow
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWANCES = Path(__file__).with_name("words.txt")
CODE = ("refdelta", "storage", "docs/examples")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "spec_notes")


@dataclass(frozen=True)
class Habit:
    """A habit of writing.

    Attributes:
        name: its name in the findings.
        pattern: matches it in text whose lines have been joined; begins anywhere, unless ``opening``.
        instead: what to write.
        opening: whether it counts only at the beginning of a docstring.
    """

    name: str
    pattern: re.Pattern[str]
    instead: str
    opening: bool = False


_PEOPLE = (
    "users? callers? readers? people person someone anyone everyone authors? developers? maintainers? administrators? "
    "operators? contributors?"
)
_PERSON = "|".join(_PEOPLE.split())


def _habit(name: str, pattern: str, instead: str, *, opening: bool = False, any_case: bool = True) -> Habit:
    return Habit(name, re.compile(pattern, re.IGNORECASE if any_case else 0), instead, opening)


HABITS = (
    _habit(
        "a docstring that opens with a question word",
        r"(whether|what|by what|of what|for whom?|from what|to what|who|whoever|whose|where|why)\b",
        "begin with the noun that it is ('The columns that ...'), or with an imperative",
        opening=True,
    ),
    _habit(
        "what as the subject of a sentence",
        r"(?:^|(?<=[.:;] ))What (?!if\b)[^.?!:]{8,}(?:[.:;]|$)",
        "name the thing: 'the values that ...', 'the rest', 'whatever' only for free choice",
        any_case=False,
    ),
    _habit(
        "who without a person",
        r"\b(?:who|whoever|whom)\b",
        "name the program or the caller: 'the writer that ...'",
    ),
    _habit("behind", r"\bbehind\b", "'after' in time and order, 'below' or 'following' in a text"),
    _habit("told", r"\btold\b|\bno telling\b|\bcan tell\b", "'given', 'passed', 'reported', 'known', 'requested'"),
    _habit("tell apart", r"\btell(?:s|ing)?\b(?:\W+\w+){0,5}?\W+(?:apart|from)\b", "'distinguish', 'identify'"),
    _habit("nobody", r"\bnobody\b", "'no writer', 'no caller', or the passive: 'is not needed'"),
    _habit("as it is", r"\bas (?:it is|they are)\b(?! \w+(?:ed|en|wn)\b)", "'unchanged', 'without conversion'"),
    _habit("so far as", r"\b(?:so|as) far as\b", "say when: 'if ...', 'where the log records it'"),
    _habit(
        "three of in a row", r"\bof (?:[\w'`.]+ ){1,3}of (?:[\w'`.]+ ){1,3}of\b", "a compound noun, or two sentences"
    ),
    _habit("becomes of", r"\b(?:becom(?:es?|ing)|became|come|comes|came) of (?:it|them|this|that)\b", "'the result'"),
    _habit(
        "a text", r"\b(?:a|one|no|is) text\b(?! (?:file|that is|column|format|mode))|\btexts\b", "'a string', 'strings'"
    ),
    _habit(
        "the exception first",
        r"(?:^|(?<=\. ))(?:But for|Except for|Other than|Apart from|Past) [a-z]",
        "the rule first, then its exception",
        any_case=False,
    ),
    _habit("or whatever", r"\bor whatever\b", "list the cases, or leave it out"),
)
WHAT, WHO = HABITS[1:3]
_CODE_SPAN = re.compile(r"(`+)[^`]+\1")
_AFTER_A_PERSON = re.compile(rf"\b(?:{_PERSON})(?:\W+\w+){{0,1}}\W+$", re.IGNORECASE)


@dataclass(frozen=True)
class Passage:
    """A connected text of a file: its line breaks are blanks, so that a habit is found across them.

    Attributes:
        text: the text.
        lines: for each line of it, where in the text it begins, and its number in the file.
        docstring: whether it is the beginning of a docstring.
    """

    text: str
    lines: tuple[tuple[int, int], ...]
    docstring: bool = False

    def line(self, position: int) -> int:
        """The line of the file in which a character of the text stands."""
        starts = [start for start, _ in self.lines]
        return self.lines[bisect_right(starts, position) - 1][1]


@dataclass(frozen=True)
class Finding:
    """A habit in a file."""

    path: str
    line: int
    habit: Habit
    words: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.habit.name} ({self.words!r}): {self.habit.instead}"


def _passage(lines: list[tuple[str, int]], *, docstring: bool = False) -> Passage:
    text, starts = "", []
    for line, number in lines:
        starts.append((len(text), number))
        text += _CODE_SPAN.sub("`x`", line.strip()) + " "
    return Passage(text, tuple(starts), docstring)


def _paragraphs(lines: list[tuple[str, int]], *, docstring: bool = False) -> Iterator[Passage]:
    """The passages of a text with blank lines between them; the first is a docstring's beginning if it is one."""
    block: list[tuple[str, int]] = []
    for line, number in [*lines, ("", 0)]:
        if line.strip():
            block.append((line, number))
        elif block:
            yield _passage(block, docstring=docstring)
            block, docstring = [], False


def of_python(source: str) -> Iterator[Passage]:
    """The docstrings, string literals and comments of a module."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value): _is_condition(node) for node in ast.walk(tree) if _has_docstring(node, documented)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.splitlines() or [""]
            # Adjacent literals are one constant, whose line breaks are not those of the file.
            spans = (node.end_lineno or node.lineno) - node.lineno >= len(text) - 1 > 0
            numbered = [(line, node.lineno + (place if spans else 0)) for place, line in enumerate(text)]
            # 'Whether ...' is how a docstring begins whose function returns a bool.
            condition = docstrings.get(id(node), True) and text[0].startswith("Whether ")
            yield from _paragraphs(numbered, docstring=id(node) in docstrings and not condition)
    comments: list[tuple[str, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if comments and (comments[-1][1] != line - 1 or token.line.strip() != token.string):
            yield _passage(comments)
            comments = []
        comments.append((token.string.lstrip("#: "), line))
    if comments:
        yield _passage(comments)


def _has_docstring(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    body = getattr(node, "body", None)
    return isinstance(node, kinds) and bool(body) and ast.get_docstring(node, clean=False) is not None


def _is_condition(node: ast.AST) -> bool:
    returned = getattr(node, "returns", None)
    return returned is not None and "bool" in ast.unparse(returned)


def of_markdown(source: str) -> Iterator[Passage]:
    """The paragraphs, items and cells of tables of a document, without its code."""
    lines: list[tuple[str, int]] = []
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            lines.append(("", 0))
        elif not fenced:
            if line.lstrip().startswith("|"):
                for cell in _CODE_SPAN.sub("`x`", line).split("|"):
                    lines += [("", 0), (cell, number)]
                lines.append(("", 0))
            elif line.startswith("#"):
                lines += [("", 0), (line, number), ("", 0)]
            else:
                item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
                lines += [("", 0), (line[item.end() :], number)] if item else [(line, number)]
    yield from _paragraphs(lines)


def findings(path: str, source: str) -> list[Finding]:
    """The habits in a file, in the order of its lines."""
    found: list[Finding] = []
    for passage in of_python(source) if path.endswith(".py") else of_markdown(source):
        for habit in HABITS:
            matches = [habit.pattern.match(passage.text)] if habit.opening else habit.pattern.finditer(passage.text)
            for match in matches:
                if match is None or (habit.opening and not passage.docstring):
                    continue
                if habit is WHAT and match.start() == 0 and passage.docstring:
                    continue  # found as an opening already
                if habit is WHO and _AFTER_A_PERSON.search(passage.text, 0, match.start()):
                    continue
                words = match.group(0)[:60].strip()
                found.append(Finding(path, passage.line(match.start()), habit, words))
    return sorted(found, key=lambda one: one.line)


def files() -> Iterator[Path]:
    """The files that are looked through."""
    for name in (*CODE, *DOCUMENTS):
        place = ROOT / name
        yield from [place] if place.is_file() else sorted((*place.rglob("*.py"), *place.rglob("*.md")))


def verdicts(counts: Counter[str], allowed: dict[str, int]) -> list[str]:
    """The errors in the counts of findings by file: more than allowed, or fewer."""
    wrong = []
    for path in sorted({*counts, *allowed}):
        found, allowance = counts[path], allowed.get(path, 0)
        if found > allowance:
            wrong.append(f"{path}: {found} findings where {allowance} are allowed; mend the new ones")
        elif found < allowance:
            wrong.append(f"{path}: {found} findings, so that {allowance} is too large an allowance; run with --write")
    return wrong


def read_allowances(text: str) -> dict[str, int]:
    """The number of findings that each file may have."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {path: int(count) for count, path in rows}


def main(arguments: list[str]) -> int:
    """Check, list or allow. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Find habits of writing that make a text hard to read.")
    parser.add_argument("paths", nargs="*", help="print the findings of these files and folders")
    parser.add_argument("--all", action="store_true", help="print every finding")
    parser.add_argument("--write", action="store_true", help="write the allowances anew")
    given = parser.parse_args(arguments)
    found = [one for file in files() for one in findings(file.relative_to(ROOT).as_posix(), file.read_text())]
    if given.all or given.paths:
        wanted = tuple(path.rstrip("/") for path in given.paths)
        shown = [
            one
            for one in found
            if given.all or one.path in wanted or one.path.startswith(tuple(f"{w}/" for w in wanted))
        ]
        sys.stdout.writelines(f"{one}\n" for one in shown)
        return 0
    counts = Counter(one.path for one in found)
    allowed = read_allowances(ALLOWANCES.read_text()) if ALLOWANCES.exists() else {}
    if given.write:
        if allowed and counts.total() > sum(allowed.values()):
            sys.stderr.write(
                f"{counts.total()} findings where {sum(allowed.values())} are allowed; mend the new ones\n"
            )
            return 1
        rows = [f"{count:3} {path}\n" for path, count in sorted(counts.items())]
        ALLOWANCES.write_text(
            "# Findings of .ci/words.py that each file may still have. They may only become fewer.\n" + "".join(rows)
        )
        return 0
    wrong = verdicts(counts, allowed)
    over = {path for path in counts if counts[path] > allowed.get(path, 0)}
    sys.stdout.writelines(f"{one}\n" for one in found if one.path in over)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
