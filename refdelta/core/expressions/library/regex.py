r"""Regular expressions: the part of Java's syntax that can be matched in linear time, and what it matches.

A pattern is parsed into a tree of Java's meaning. From it comes a pattern for RE2, with which columns are matched, and
a program for :func:`find`, which is the definition. Constructs that RE2 does not have, or has with another meaning, are
refused by name. Classes are sets of code points here, so that ``\d``, ``\s``, ``.`` and ``(?i)`` mean the same as in
Java.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from refdelta.errors import ExpressionError, PredicateError

LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]
"""Ranges of code points, both ends included, in order and apart from each other."""

MOST_INSTRUCTIONS = 5_000
"""The greatest size of a pattern, after its repetitions are written out."""

MOST_STEPS = 20_000_000
"""The most steps that the definition takes for one string."""

_LONGEST_PATTERN = 10_000
_MOST_REPEATS = 1_000  # of RE2
_TERMINATORS = "\n\r\x85\u2028\u2029"

# --- sets of code points -----------------------------------------------------------------------------------------


def _united(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _without(ranges: Ranges) -> Ranges:
    found, at = [], 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


def _of(text: str) -> Ranges:
    return _united([(ord(char), ord(char)) for char in text])


_DIGIT: Ranges = ((48, 57),)
_LOWER: Ranges = ((97, 122),)
_UPPER: Ranges = ((65, 90),)
_WORD = _united([*_DIGIT, *_LOWER, *_UPPER, (95, 95)])
_SPACE = _of(" \t\n\x0b\f\r")
_BLANK = _of(" \t\xa0\u1680\u180e\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
_VERTICAL = _of("\n\x0b\f\r\x85\u2028\u2029")
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _BLANK, "v": _VERTICAL}
_POSIX = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0, 127),),
    "Alpha": _united([*_LOWER, *_UPPER]),
    "Digit": _DIGIT,
    "Alnum": _united([*_DIGIT, *_LOWER, *_UPPER]),
    "Punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "Graph": ((33, 126),),
    "Print": ((32, 126),),
    "Blank": _of(" \t"),
    "Cntrl": ((0, 31), (127, 127)),
    "XDigit": ((48, 57), (65, 70), (97, 102)),
    "Space": _SPACE,
}


def _either_case(ranges: Ranges) -> Ranges:
    """As Java's CASE_INSENSITIVE without UNICODE_CASE: letters of ASCII only."""
    more = list(ranges)
    for low, high in ranges:
        for first, last, shift in ((65, 90, 32), (97, 122, -32)):
            if low <= last and high >= first:
                more.append((max(low, first) + shift, min(high, last) + shift))
    return _united(more)


# --- the tree ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class _Place:
    """A place between characters: ``^`` (the start), ``$`` (before a last line end), ``z`` (the end), ``b``, ``B``."""

    kind: str


@dataclass(frozen=True, slots=True)
class _Group:
    child: _Node
    number: int


@dataclass(frozen=True, slots=True)
class _Sequence:
    children: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    children: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    child: _Node
    least: int
    most: int | None
    greedy: bool


_Node = _Chars | _Place | _Group | _Sequence | _Choice | _Repeat


def _nullable(node: _Node) -> bool:
    match node:
        case _Chars():
            return False
        case _Place():
            return True
        case _Group(child):
            return _nullable(child)
        case _Sequence(children):
            return all(map(_nullable, children))
        case _Choice(children):
            return any(map(_nullable, children))
        case _Repeat(child, least):
            return least == 0 or _nullable(child)


def _size(node: _Node) -> int:
    match node:
        case _Group(child):
            return 2 + _size(child)
        case _Sequence(children):
            return sum(map(_size, children))
        case _Choice(children):
            return 2 * len(children) + sum(map(_size, children))
        case _Repeat(child, least, most):
            return max(least + 1 if most is None else most, 1) * (_size(child) + 1)
    return 1


@dataclass
class _Parser:
    """A parser of one pattern, by recursive descent."""

    pattern: str
    at: int = 0
    groups: int = 0
    names: dict[str, int] = field(default_factory=dict)
    any_case: bool = False
    dot_all: bool = False
    depth: int = 0

    def refuse(self, what: str, place: int | None = None) -> PredicateError:
        shown = self.pattern if len(self.pattern) <= 80 else self.pattern[:80] + "..."
        where = (self.at if place is None else place) + 1
        return PredicateError(f"the regular expression {shown!r}: {what} (character {where}) is not supported here")

    def peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def next(self) -> str:
        char = self.peek()
        if not char:
            raise self.refuse("an end in the middle")
        self.at += 1
        return char

    def choice(self) -> _Node:
        self.depth += 1
        if self.depth > 50:
            raise self.refuse("more than 50 levels of groups")
        any_case, dot_all = self.any_case, self.dot_all
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        self.any_case, self.dot_all = any_case, dot_all
        self.depth -= 1
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def sequence(self) -> _Node:
        parts: list[_Node] = []
        while self.peek() not in ("", "|", ")"):
            start = self.at
            atom = self.atom()
            if atom is None:
                continue
            parts.append(self.repeated(atom, start))
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def repeated(self, atom: _Node, start: int) -> _Node:
        bounds = self.bounds()
        if bounds is None:
            return atom
        least, most = bounds
        if isinstance(atom, _Place):
            raise self.refuse("a repeated ^, $ or \\b", start)
        if most != 1 and _nullable(atom):
            raise self.refuse("the repetition of something that may match nothing", start)
        greedy = True
        if self.peek() == "?":
            self.at, greedy = self.at + 1, False
        elif self.peek() == "+":
            raise self.refuse("a possessive quantifier")
        if self.peek() and self.peek() in "*+?{":
            raise self.refuse("a quantifier of a quantifier")
        return _Repeat(atom, least, most, greedy)

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.next()]
        if self.peek() != "{":
            return None
        start = self.at
        end = self.pattern.find("}", start)
        body = self.pattern[start + 1 : end] if end > 0 else ""
        low, comma, high = body.partition(",")
        if not (low.isdecimal() and low.isascii() and (not high or (high.isdecimal() and high.isascii()))):
            raise self.refuse(f"the quantifier {{{body}}}", start)
        if len(low) > 6 or len(high) > 6 or int(low) > _MOST_REPEATS or int(high or 0) > _MOST_REPEATS:
            raise self.refuse(f"more than {_MOST_REPEATS:,} repetitions", start)
        self.at = end + 1
        least = int(low)
        most = int(high) if high else None if comma else least
        if most is not None and most < least:
            raise self.refuse(f"the quantifier {{{body}}}", start)
        return least, most

    def atom(self) -> _Node | None:
        char = self.next()
        match char:
            case "(":
                return self.group()
            case "[":
                return _Chars(self.char_class())
            case ".":
                return _Chars(((0, LAST),) if self.dot_all else _without(_of(_TERMINATORS)))
            case "^":
                return _Place("^")
            case "$":
                return _Place("$")
            case "\\":
                return self.escape()
            case "*" | "+" | "?" | "{":
                raise self.refuse(f"{char!r} without anything before it", self.at - 1)
        return self.char(ord(char))

    def char(self, code: int) -> _Chars:
        return _Chars(_either_case(((code, code),)) if self.any_case else ((code, code),))

    def group(self) -> _Node | None:
        start = self.at - 1
        number = 0
        if self.peek() == "?":
            self.at += 1
            kind = self.next()
            if kind == "<" and self.peek().isascii() and self.peek().isalpha():
                end = self.pattern.find(">", self.at)
                name = self.pattern[self.at : end] if end > 0 else ""
                if not (name.isascii() and name.isalnum()) or name in self.names:
                    raise self.refuse(f"the name {name!r} of a group", start)
                self.at = end + 1
                self.groups += 1
                number = self.names[name] = self.groups
            elif kind != ":":
                return self.flags(kind, start)
        else:
            self.groups += 1
            number = self.groups
        child = self.choice()
        if self.peek() != ")":
            raise self.refuse("a group without its end", start)
        self.at += 1
        # A group without number keeps its alternatives together.
        return _Group(child, number)

    def flags(self, kind: str, start: int) -> _Node | None:
        lookaround = {"=": "a lookahead", "!": "a lookahead", "<": "a lookbehind", ">": "an atomic group"}
        if kind in lookaround:
            raise self.refuse(lookaround[kind], start)
        on, any_case, dot_all = True, self.any_case, self.dot_all
        while kind not in (")", ":"):
            if kind == "-" and on:
                on = False
            elif kind == "i":
                any_case = on
            elif kind == "s":
                dot_all = on
            else:
                raise self.refuse(f"the flag (?{kind})", start)
            kind = self.next()
        if kind == ")":
            self.any_case, self.dot_all = any_case, dot_all
            return None
        before = self.any_case, self.dot_all
        self.any_case, self.dot_all = any_case, dot_all
        child = self.choice()
        self.any_case, self.dot_all = before
        if self.peek() != ")":
            raise self.refuse("a group without its end", start)
        self.at += 1
        return _Group(child, 0)

    def escape(self) -> _Node:
        start = self.at - 1
        char = self.next()
        match char:
            case "b" | "B":
                if self.peek() == "{":
                    raise self.refuse("\\b{g}", start)
                return _Place(char)
            case "A":
                return _Place("^")
            case "z":
                return _Place("z")
            case "Z":
                return _Place("$")
            case "R":
                pair = _Sequence((_Chars(_of("\r")), _Chars(_of("\n"))))
                return _Group(_Choice((pair, _Chars(_VERTICAL))), 0)
            case "Q":
                end = self.pattern.find("\\E", self.at)
                text = self.pattern[self.at : end if end >= 0 else None]
                self.at = end + 2 if end >= 0 else len(self.pattern)
                chars = tuple(self.char(ord(one)) for one in text)
                if not chars or (len(chars) > 1 and self.peek() in ("*", "+", "?", "{")):
                    raise self.refuse("\\Q without characters, or with a quantifier after it", start)
                return chars[0] if len(chars) == 1 else _Sequence(chars)
        found = self.escaped(char, start)
        if isinstance(found, int):
            return self.char(found)
        return _Chars(_either_case(found) if self.any_case and char in "pP" else found)

    def escaped(self, char: str, start: int) -> Ranges | int:
        """An escape that is allowed in a class too: a set, or one code point."""
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found if char.islower() else _without(found)
        if char in "pP":
            end = self.pattern.find("}", self.at)
            name = self.pattern[self.at + 1 : end] if self.peek() == "{" and end > 0 else self.peek()
            if name not in _POSIX:
                raise self.refuse(f"the class \\{char}{{{name}}}; of \\p there are {', '.join(_POSIX)}:", start)
            if self.any_case and name in ("Lower", "Upper"):
                raise self.refuse(f"\\{char}{{{name}}} without regard to case", start)
            self.at = end + 1
            return _POSIX[name] if char == "p" else _without(_POSIX[name])
        control = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
        if char in control:
            return control[char]
        if char in "xu":
            digits = 2 if char == "x" else 4
            if char == "x" and self.peek() == "{":
                end = self.pattern.find("}", self.at)
                text = self.pattern[self.at + 1 : max(end, 0)]
                self.at = end + 1
            else:
                text = self.pattern[self.at : self.at + digits]
                self.at += digits
                if len(text) < digits:
                    text = ""
            hexadecimal = text.isascii() and text.isalnum() and len(text) <= 6
            code = int(text, 16) if hexadecimal and all(c in "0123456789abcdefABCDEF" for c in text) else -1
            if not 0 <= code <= LAST or 0xD800 <= code < 0xE000:
                raise self.refuse(f"the character \\{char}{text}", start)
            return code
        if char.isdigit():
            raise self.refuse("a backreference, or a character in octal", start)
        if char.isascii() and char.isalpha():
            raise self.refuse(f"\\{char}", start)
        return ord(char)

    def char_class(self) -> Ranges:
        start = self.at - 1
        negated = self.peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        first = True
        while first or self.peek() != "]":
            place = self.at
            if self.at >= len(self.pattern):
                raise self.refuse("a class without its end", start)
            one = self.class_item()
            first = False
            rest = self.pattern[self.at : self.at + 2]
            if isinstance(one, int) and rest[:1] == "-" and rest[1:] not in ("", "]", "["):
                self.at += 1
                last = self.class_item()
                if not isinstance(last, int) or last < one:
                    raise self.refuse("a range without its end", place)
                found.append((one, last))
            elif isinstance(one, int):
                found.append((one, one))
            elif self.any_case and rest[:1] == "-" and rest[1:] not in ("", "]"):
                raise self.refuse("a range without its start", place)
            else:
                found += one
        self.at += 1
        ranges = _united(found)
        if self.any_case:
            ranges = _either_case(ranges)
        ranges = _without(ranges) if negated else ranges
        if not ranges:
            raise self.refuse("a class of no characters", start)
        return ranges

    def class_item(self) -> Ranges | int:
        place = self.at
        char = self.next()
        if char == "[":
            raise self.refuse("a class in a class", place)
        if char == "&" and self.peek() == "&":
            raise self.refuse("an intersection of classes", place)
        if char == "]":
            raise self.refuse("a class that begins with ]", place)
        if char != "\\":
            return ord(char)
        char = self.next()
        if char in "bBAzZRQEGX":
            raise self.refuse(f"\\{char} in a class", place)
        return self.escaped(char, place)


# --- the program -------------------------------------------------------------------------------------------------

_Instruction = tuple[str, object, object]
"""One of: ``chars`` with ranges; ``place`` with its kind; ``split`` with two targets, the preferred one first;
``jump``; ``save`` with a slot; ``match``.
"""


def _compile(node: _Node, code: list[list[object]]) -> None:
    match node:
        case _Chars(ranges):
            code.append(["chars", ranges, None])
        case _Place(kind):
            code.append(["place", kind, None])
        case _Group(child, number):
            if number:
                code.append(["save", 2 * number, None])
            _compile(child, code)
            if number:
                code.append(["save", 2 * number + 1, None])
        case _Sequence(children):
            for child in children:
                _compile(child, code)
        case _Choice(children):
            jumps = []
            for child in children[:-1]:
                split: list[object] = ["split", len(code) + 1, None]
                code.append(split)
                _compile(child, code)
                jump: list[object] = ["jump", None, None]
                jumps.append(jump)
                code.append(jump)
                split[2] = len(code)
            _compile(children[-1], code)
            for jump in jumps:
                jump[1] = len(code)
        case _Repeat(child, least, most, greedy):
            for _ in range(least):
                _compile(child, code)
            _compile_rest(child, None if most is None else most - least, greedy, code)


def _compile_rest(child: _Node, times: int | None, greedy: bool, code: list[list[object]]) -> None:
    """The optional repetitions: so many, or any number."""
    place = 1 if greedy else 2
    splits = []
    for _ in range(1 if times is None else times):
        split: list[object] = ["split", None, None]
        split[place] = len(code) + 1
        start = len(code)
        code.append(split)
        splits.append(split)
        _compile(child, code)
        if times is None:
            code.append(["jump", start, None])
    for split in splits:
        split[3 - place] = len(code)


@dataclass(frozen=True, slots=True)
class RegularExpression:
    r"""A pattern that was read.

    Attributes:
        pattern: its text.
        re2: the pattern for RE2, where ``$`` is the end of the text alone; see :attr:`before_line_end`.
        groups: the number of its capturing groups.
        names: the numbers of the groups that have names.
        nullable: whether it may match the empty string somewhere.
        before_line_end: whether it has ``$`` or ``\Z``, which in Java match before a last line end too.
        boundaries: whether it has ``\b`` or ``\B``, whose meaning beside characters that are not ASCII depends on the
            version of Java.
        code: the instructions of its program.
    """

    pattern: str
    re2: str
    groups: int
    names: dict[str, int]
    nullable: bool
    before_line_end: bool
    boundaries: bool
    code: tuple[_Instruction, ...]


@functools.lru_cache(maxsize=64)
def read_pattern(pattern: str) -> RegularExpression:
    """A pattern in Java's syntax.

    Raises:
        PredicateError: it is none, or has something that cannot be matched in linear time with Java's meaning.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise PredicateError(f"a regular expression has {_LONGEST_PATTERN:,} characters at most, not {len(pattern):,}")
    parser = _Parser(pattern)
    tree = parser.choice()
    if parser.at < len(pattern):
        raise parser.refuse("a ) without its start")
    if _size(tree) > MOST_INSTRUCTIONS:
        raise parser.refuse(f"a pattern of more than {MOST_INSTRUCTIONS:,} steps, with its repetitions,", 0)
    code: list[list[object]] = []
    _compile(tree, code)
    code.append(["match", None, None])
    places = {item[1] for item in code if item[0] == "place"}
    return RegularExpression(
        pattern,
        _re2(tree),
        parser.groups,
        parser.names,
        _nullable(tree),
        "$" in places,
        bool(places & {"b", "B"}),
        tuple((str(name), one, other) for name, one, other in code),
    )


# --- RE2 ---------------------------------------------------------------------------------------------------------


def _re2(node: _Node) -> str:
    match node:
        case _Chars(ranges):
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return _char(ranges[0][0])
            return "[" + "".join(_char(low) + (f"-{_char(high)}" if high > low else "") for low, high in ranges) + "]"
        case _Place(kind):
            return {"^": r"\A", "$": r"\z", "z": r"\z"}.get(kind, f"\\{kind}")
        case _Group(child, number):
            return ("(" if number else "(?:") + _re2(child) + ")"
        case _Sequence(children):
            return "".join(f"(?:{_re2(child)})" if isinstance(child, _Choice) else _re2(child) for child in children)
        case _Choice(children):
            return "|".join(map(_re2, children))
        case _Repeat(child, least, most, greedy):
            inner = _re2(child)
            if not isinstance(child, _Chars | _Group):
                inner = f"(?:{inner})"
            count = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            if count is None:
                count = f"{{{least},{'' if most is None else most}}}"
            return inner + count + ("" if greedy else "?")


def _char(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"


# --- the definition ----------------------------------------------------------------------------------------------


def finds(regex: RegularExpression, text: str) -> Iterator[tuple[int, ...]]:
    """The matches of a pattern from the left, as Java's ``find`` gives them one after the other.

    Yields:
        The starts and ends of the match and of its groups, by twos; -1 for a group that is not in the match.

    Raises:
        ExpressionError: it takes too many steps, or depends on the version of Java.
    """
    at = 0
    while at <= len(text):
        found = find(regex, text, at)
        if found is None:
            return
        yield found
        at = found[1] if found[1] > found[0] else found[1] + 1


def find(regex: RegularExpression, text: str, start: int = 0) -> tuple[int, ...] | None:
    """The first match at ``start`` or later; see :func:`finds`.

    All threads of the match proceed together, in the order in which backtracking would try them.
    """
    if regex.boundaries and not text.isascii():
        raise ExpressionError(
            f"\\b in {regex.pattern!r} has no one meaning for a string that is not ASCII: {text[:40]!r}; Java 17 and "
            "21 differ. Write the characters that may stand there, such as (^|[^a-z])"
        )
    if (len(text) - start + 1) * len(regex.code) > MOST_STEPS:
        raise ExpressionError(f"{regex.pattern!r} takes too many steps for a string of {len(text):,} characters")
    slots = (-1,) * (2 * regex.groups + 2)
    found: tuple[int, ...] | None = None
    threads: list[tuple[int, tuple[int, ...]]] = []
    for at in range(start, len(text) + 1):
        if found is None:
            seen = {place for place, _ in threads}
            _add(regex, text, at, 0, (at, *slots[1:]), threads, seen)
        if not threads and found is not None:
            break
        following: list[tuple[int, tuple[int, ...]]] = []
        seen = set()
        code = ord(text[at]) if at < len(text) else -1
        for place, saved in threads:
            name, ranges, _ = regex.code[place]
            if name == "match":
                found = (saved[0], at, *saved[2:])
                break
            if code >= 0 and _is_in(code, ranges):
                _add(regex, text, at + 1, place + 1, saved, following, seen)
        threads = following
    return found


def _is_in(code: int, ranges: object) -> bool:
    return isinstance(ranges, tuple) and any(low <= code <= high for low, high in ranges)


def _add(
    regex: RegularExpression,
    text: str,
    at: int,
    place: int,
    saved: tuple[int, ...],
    threads: list[tuple[int, tuple[int, ...]]],
    seen: set[int],
) -> None:
    """Follow the instructions that take no character, the preferred ones first."""
    todo = [(place, saved)]
    while todo:
        place, saved = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        name, one, other = regex.code[place]
        match name:
            case "jump":
                todo.append((_target(one), saved))
            case "split":
                todo += [(_target(other), saved), (_target(one), saved)]
            case "save":
                slot = _target(one)
                todo.append((place + 1, (*saved[:slot], at, *saved[slot + 1 :])))
            case "place":
                if _holds(str(one), text, at):
                    todo.append((place + 1, saved))
            case _:
                threads.append((place, saved))


def _target(value: object) -> int:
    return value if isinstance(value, int) else 0


def _holds(kind: str, text: str, at: int) -> bool:
    match kind:
        case "^":
            return at == 0
        case "z":
            return at == len(text)
        case "$":
            rest = text[at : at + 3]
            if rest == "\n":
                return text[at - 1 : at] != "\r"
            return rest in ("", "\r\n") or (len(rest) == 1 and rest in _TERMINATORS)
    word = [_is_in(ord(char), _WORD) for char in (text[at - 1 : at] if at else "", text[at : at + 1]) if char]
    inner = len(word) == 2 and word[0] == word[1]
    outer = len(word) < 2 and not any(word)
    return (inner or outer) == (kind == "B")


# --- replacements ------------------------------------------------------------------------------------------------


def replacement_parts(regex: RegularExpression, replacement: str) -> tuple[str | int, ...]:
    """The parts of a replacement in Java's syntax: strings, and numbers of groups.

    Raises:
        PredicateError: it is none, or names a group that the pattern does not have.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\":
            if at == len(replacement):
                raise PredicateError(f"the replacement {replacement!r} ends in a backslash")
            parts.append(replacement[at])
            at += 1
        elif char == "$":
            number, at = _reference(regex, replacement, at)
            parts.append(number)
        else:
            parts.append(char)
    joined: list[str | int] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _reference(regex: RegularExpression, replacement: str, at: int) -> tuple[int, int]:
    if replacement[at : at + 1] == "{":
        end = replacement.find("}", at)
        name = replacement[at + 1 : max(end, 0)]
        if name not in regex.names:
            raise PredicateError(f"the replacement {replacement!r}: the pattern has no group named {name!r}")
        return regex.names[name], end + 1
    digits = replacement[at : at + 1]
    if not (digits.isascii() and digits.isdigit()):
        raise PredicateError(f"the replacement {replacement!r}: after $ comes the number of a group; \\$ is the sign")
    number = int(digits)
    if number > regex.groups:
        raise PredicateError(f"the replacement {replacement!r}: the pattern has {regex.groups} groups, not {number}")
    at += 1
    # A further digit belongs to the number where there is such a group.
    while replacement[at : at + 1].isascii() and replacement[at : at + 1].isdigit():
        longer = number * 10 + int(replacement[at])
        if longer > regex.groups:
            break
        number, at = longer, at + 1
    return number, at
