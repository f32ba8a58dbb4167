"""Every regular expression of the package, and texts of the characters that it looks for."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (ROOT / "refdelta", ROOT / "storage" / "refdelta_storage")
_SEARCHES: Final = {"search", "sub", "subn", "split", "findall", "finditer", "scanner"}
_METHODS: Final = _SEARCHES | {"match", "fullmatch"}

SHORT, LENGTH, MORE = 22, 1_500, 4
"""Characters of the texts: to find exponential growth, to begin with, and how many times as many then."""


@dataclass(frozen=True)
class Used:
    """A regular expression, where it stands, and whether it is tried at every place of a text."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    @property
    def run(self) -> Callable[[Any], Any]:
        if self.method in _SEARCHES:
            return lambda text: sum(1 for _ in self.pattern.finditer(text))
        return self.pattern.fullmatch if self.method == "fullmatch" else self.pattern.match


def patterns() -> tuple[list[Used], list[str]]:
    """All that the source has, and the places of those that are made at run time."""
    found: list[Used] = []
    made: list[str] = []
    sources = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    text = "\n".join(path.read_text() for path in sources)
    for path in sources:
        tree = ast.parse(path.read_text())
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_of_re(node.func)]
        for call in calls:
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            module = _module(path)
            function = call.func.attr  # type: ignore[attr-defined]
            try:
                value = _value(call.args[0], module)
            except NameError:
                value = None
            if not isinstance(value, str | bytes):
                made.append(f"{where.partition(':')[0]} {ast.unparse(call.args[0])}")
                continue
            flags = [_value(one.value, module) for one in call.keywords if one.arg == "flags"]
            flags += [one for one in (_flag(argument, module) for argument in call.args[1:]) if one]
            compiled = re.compile(value, flags[-1] if flags else 0)
            own = path.read_text()
            found += [Used(where, compiled, method) for method in _methods(function, parents.get(call), own, text)]
    return found, made


def _is_of_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _METHODS | {"compile"}
    )


def _module(path: Path) -> dict[str, Any]:
    folder = ROOT / "storage" if "refdelta_storage" in path.parts else ROOT
    name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    return vars(importlib.import_module(name))


def _value(node: ast.expr, module: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), dict(module))


def _flag(node: ast.expr, module: dict[str, Any]) -> Any:
    try:
        found = _value(node, module)
    except NameError:
        return None
    return found if isinstance(found, re.RegexFlag) else None


def _methods(function: str, parent: ast.AST | None, own: str, everything: str) -> set[str]:
    """By which methods a pattern is used; it is searched for if that cannot be seen.

    Args:
        function: of ``re``.
        parent: the node around the call.
        own: the source of the module, which alone uses its private names.
        everything: the source of the package.
    """
    if function != "compile":
        return {function}
    if isinstance(parent, ast.Attribute) and parent.attr in _METHODS:
        return {parent.attr}
    target = getattr(parent, "targets", [getattr(parent, "target", None)])[0]
    if isinstance(target, ast.Name):
        text = own if target.id.startswith("_") else everything
        used = re.findall(rf"\b{target.id}(?:\[\w+\])?\.({'|'.join(_METHODS)})\b", text)
        # One that is handed to another function is used by a method that the module has.
        handed = re.findall(rf"\b(?!re\b)[a-z]\w*\.({'|'.join(_METHODS)})\(", own)
        return set(used or handed) or {"search"}
    return {"search"}


# --- texts -------------------------------------------------------------------------------------------------------


def _members(items: Any) -> Iterator[int]:
    """Code points of the nodes of a parsed pattern: a few of each set, and each literal."""
    for code, argument in items:
        if code in (codes.LITERAL, codes.NOT_LITERAL):
            yield argument
        elif code is codes.RANGE:
            yield from argument
        elif code is codes.CATEGORY:
            yield from map(ord, "5" if "DIGIT" in str(argument) else " " if "SPACE" in str(argument) else "w")
        elif code is codes.IN:
            yield from _members(argument)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from _members(argument[2])
        elif code is codes.SUBPATTERN:
            yield from _members(argument[3])
        elif code is codes.BRANCH:
            yield from chain.from_iterable(_members(one) for one in argument[1])
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _members(argument[1])


def _literals(pattern: re.Pattern[Any]) -> list[str]:
    """Runs of literals of a pattern, such as the words with which a match begins."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return list(dict.fromkeys(re.findall(r"[A-Za-z:/=<_-]{2,}", text)))[:6]


def texts(pattern: re.Pattern[Any]) -> list[Callable[[int], Any]]:
    """Texts of any length that keep a matcher going: units of a few of the pattern's characters, over and over, after
    the beginning of a match and before the end of it.
    """
    parsed = parser.parse(pattern.pattern, pattern.flags)
    some = list(dict.fromkeys(chr(one) for one in _members(parsed) if one < 0x250))
    letters = list(dict.fromkeys([*some[:: max(1, len(some) // 4)][:5], "a", " "]))
    units = [*letters, *(one + other for one in letters for other in letters if one != other), *_literals(pattern)]
    starts = ["", *_literals(pattern)[:2]]
    encode = (lambda text: text) if isinstance(pattern.pattern, str) else (lambda text: text.encode("latin-1"))
    return [
        lambda length, unit=unit, start=start: encode(start + unit * (length // len(unit)) + "\x00")
        for unit in units
        for start in starts
    ]


def seconds(run: Callable[[Any], Any], text: Any, times: int) -> float:
    """Processor time of one match, the least of some."""
    found = []
    for _ in range(times):
        began = time.process_time()
        run(text)
        found.append(time.process_time() - began)
    return min(found)


def growth(used: Used, cost: Callable[[Callable[[Any], Any], Any, int], float] = seconds) -> str | None:
    """The text on which the time of a pattern grows faster than its length, if there is one.

    Args:
        used: the pattern.
        cost: the time of a match on a text, the least of some.
    """
    for text in texts(used.pattern):
        if cost(used.run, text(SHORT), 1) > 0.05 and cost(used.run, text(SHORT), 3) > 0.05:
            return f"exponential: {text(SHORT)!r}"
        if cost(used.run, text(LENGTH * MORE), 1) < 0.01:
            continue
        long = cost(used.run, text(LENGTH * MORE), 3)
        if long > 0.01 and long > 2 * MORE * cost(used.run, text(LENGTH), 3):
            return f"{text(12)!r}: {long:.3f} s for {LENGTH * MORE:,} characters"
    return None
