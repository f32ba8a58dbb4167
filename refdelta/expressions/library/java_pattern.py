r"""Regular expressions of Java, written for RE2.

A pattern is read once. Constructs that RE2 does not have, or has with another meaning, are refused by name. Those that
differ in form alone are rewritten: ``\s``, ``.``, ``(?i)``, ``(?<name>``, ``\Q...\E``, characters by their codes. RE2
decides what matches, in linear time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.errors import PredicateError

_LONGEST_PATTERN = 10_000
_MOST_REPEATS = 1_000  # of RE2
_MOST_LEVELS = 50

LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])\z"
"""For RE2: a last line end, before which ``$`` matches in Java."""

_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_POSIX = "Lower Upper ASCII Alpha Digit Alnum Punct Graph Print Blank Cntrl XDigit Space".split()  # noqa: SIM905
_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_ESCAPES = {
    "Z": r"\Z; write $",
    "G": r"\G, the end of the match before",
    "R": r"\R; write (?:\r\n|\n)",
    "X": r"\X, a grapheme cluster",
    "N": r"\N{...}, a character by its name",
    "h": r"\h; write [ \t]",
    "H": r"\H; write [^ \t]",
    "v": r"\v; write [\n\r]",
    "V": r"\V; write [^\n\r]",
    "k": "a backreference",
    "c": r"\c, a control character; write its code, as in \x01",
    "0": r"a character in octal; write its code, as in \x01",
}
_GROUPS = {
    "=": "a lookahead",
    "!": "a lookahead",
    "<": "a lookbehind",
    ">": "an atomic group",
}


@dataclass(frozen=True, slots=True)
class JavaPattern:
    r"""A pattern that was read.

    Attributes:
        pattern: its text.
        re2: the pattern for RE2, in which ``$`` is the end of the string, and the groups have the names ``g1``, ``g2``.
        groups: the number of its capturing groups.
        names: the numbers of the groups that have names.
        nullable: whether it may match the empty string somewhere.
        line_end: whether it has ``$``, which in Java matches before a last line end too; always where an alternative
            of the whole pattern ends.
        boundaries: whether it has ``\b`` or ``\B``, whose meaning beside characters that are not ASCII depends on the
            version of Java.
    """

    pattern: str
    re2: str
    groups: int
    names: dict[str, int]
    nullable: bool
    line_end: bool
    boundaries: bool


@functools.lru_cache(maxsize=64)
def read_pattern(pattern: str) -> JavaPattern:
    """A pattern in Java's syntax.

    Raises:
        PredicateError: it is none, or has something that RE2 does not match with Java's meaning.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise PredicateError(f"a regular expression has {_LONGEST_PATTERN:,} characters at most, not {len(pattern):,}")
    reader = _Reader(pattern)
    nullable = reader.alternatives()
    if reader.at < len(pattern):
        raise reader.refuse("a ) without its start")
    if reader.line_end and reader.text_end:
        raise reader.refuse(r"$ beside \z", 0)
    re2 = "".join(reader.out)
    try:
        pc.match_substring_regex(pa.repeat("", 1), re2)
    except pa.ArrowInvalid as error:
        raise reader.refuse(f"what RE2 does not take: {str(error).rpartition(': ')[2]}", 0) from None
    return JavaPattern(
        pattern, re2, reader.groups, reader.names, nullable, bool(reader.line_end), bool(reader.boundaries)
    )


def _char(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"


def _either_case(low: int, high: int) -> str:
    """A range of characters as items of a class, with the letters of ASCII in the other case, too."""
    found = [(low, high)]
    for first, last, shift in ((65, 90, 32), (97, 122, -32)):
        if low <= last and high >= first:
            found.append((max(low, first) + shift, min(high, last) + shift))
    return "".join(_range(*one) for one in found)


def _range(low: int, high: int) -> str:
    return _char(low) + (f"-{_char(high)}" if high > low else "")


@dataclass
class _Reader:
    """A reader of one pattern, by recursive descent. The methods that read a part say whether it may match nothing."""

    pattern: str
    at: int = 0
    out: list[str] = field(default_factory=list)
    groups: int = 0
    names: dict[str, int] = field(default_factory=dict)
    any_case: bool = False
    dot_all: bool = False
    depth: int = 0
    line_end: bool = False
    text_end: bool = False
    boundaries: bool = False

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

    def until(self, end: str) -> str | None:
        """The text before an end, which is passed; None if there is none."""
        place = self.pattern.find(end, self.at)
        if place < 0:
            return None
        text, self.at = self.pattern[self.at : place], place + len(end)
        return text

    def alternatives(self) -> bool:
        """Alternatives up to the end of their group. Flags hold until then."""
        self.depth += 1
        if self.depth > _MOST_LEVELS:
            raise self.refuse(f"more than {_MOST_LEVELS} levels of groups")
        flags = self.any_case, self.dot_all
        nullable = self.sequence()
        while self.peek() == "|":
            self.at += 1
            self.out.append("|")
            nullable = self.sequence() or nullable
        self.any_case, self.dot_all = flags
        self.depth -= 1
        return nullable

    def sequence(self) -> bool:
        nullable = True
        while self.peek() not in ("", "|", ")"):
            start = self.at
            before = len(self.out)
            empty = self.atom()
            if empty is None:  # flags
                continue
            nullable = self.quantified(start, len(self.out) - before, empty=empty) and nullable
        return nullable

    def quantified(self, start: int, size: int, *, empty: bool) -> bool:
        bounds = self.bounds()
        if bounds is None:
            return empty
        least, most = bounds
        if self.pattern[start] in "^$" or self.pattern[start : start + 2] in ("\\b", "\\B", "\\A", "\\z"):
            raise self.refuse("a repeated ^, $ or \\b", start)
        if self.pattern.startswith("\\Q", start) and size != 1:
            raise self.refuse("\\Q with a quantifier after it", start)
        if most != 1 and empty:
            raise self.refuse("the repetition of something that may match nothing", start)
        self.out.append(f"{{{least},{'' if most is None else most}}}")
        if self.peek() == "?":
            self.at += 1
            self.out.append("?")
        elif self.peek() == "+":
            raise self.refuse("a possessive quantifier")
        if self.peek() and self.peek() in "*+?{":
            raise self.refuse("a quantifier of a quantifier")
        return empty or least == 0

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.next()]
        if self.peek() != "{":
            return None
        start = self.at
        self.at += 1
        body = self.until("}") or ""
        low, comma, high = body.partition(",")
        if not (low.isdecimal() and low.isascii() and (not high or (high.isdecimal() and high.isascii()))):
            raise self.refuse(f"the quantifier {{{body}}}", start)
        if len(low) > 6 or len(high) > 6 or int(low) > _MOST_REPEATS or int(high or 0) > _MOST_REPEATS:
            raise self.refuse(f"more than {_MOST_REPEATS:,} repetitions", start)
        most = int(high) if high else None if comma else int(low)
        if most is not None and most < int(low):
            raise self.refuse(f"the quantifier {{{body}}}", start)
        return int(low), most

    def atom(self) -> bool | None:
        """A part that a quantifier may follow, as one item of ``out``; None for flags."""
        start = self.at
        char = self.next()
        match char:
            case "(":
                return self.group()
            case "[":
                self.out.append(self.char_class())
            case ".":
                self.out.append("(?s:.)" if self.dot_all else _DOT)
            case "^":
                self.out.append(r"\A")
                return True
            case "$":
                if self.depth > 1 or self.peek() not in ("", "|"):
                    raise self.refuse("a $ before the end of the pattern", start)
                self.line_end = True
                self.out.append(r"\z")
                return True
            case "\\":
                return self.escape()
            case "*" | "+" | "?" | "{":
                raise self.refuse(f"{char!r} without anything before it", start)
            case _:
                self.out.append(self.char(ord(char)))
        return False

    def char(self, code: int) -> str:
        return f"[{_either_case(code, code)}]" if self.any_case and chr(code).isascii() else _char(code)

    def group(self) -> bool | None:
        start = self.at - 1
        flags = self.any_case, self.dot_all
        opening = "(?:"
        if self.peek() != "?":
            self.groups += 1
            opening = f"(?P<g{self.groups}>"
        else:
            self.at += 1
            kind = self.next()
            if kind == "<" and self.peek().isascii() and self.peek().isalpha():
                name = self.until(">") or ""
                if not (name.isascii() and name.isalnum()) or name in self.names:
                    raise self.refuse(f"the name {name!r} of a group", start)
                self.groups += 1
                self.names[name] = self.groups
                opening = f"(?P<g{self.groups}>"
            elif kind != ":" and self.flags(kind, start):
                return None
        outer, self.out = self.out, []
        nullable = self.alternatives()
        self.any_case, self.dot_all = flags
        if self.peek() != ")":
            raise self.refuse("a group without its end", start)
        self.at += 1
        outer.append(opening + "".join(self.out) + ")")
        self.out = outer
        return nullable

    def flags(self, kind: str, start: int) -> bool:
        """Flags, for the rest of the group around them (True) or for a group of their own."""
        if kind in _GROUPS:
            raise self.refuse(_GROUPS[kind], start)
        on = True
        while kind not in (")", ":"):
            if kind == "-" and on:
                on = False
            elif kind == "i":
                self.any_case = on
            elif kind == "s":
                self.dot_all = on
            else:
                raise self.refuse(f"the flag (?{kind})", start)
            kind = self.next()
        return kind == ")"

    def escape(self) -> bool:
        start = self.at - 1
        char = self.next()
        match char:
            case "b" | "B":
                if self.peek() == "{":
                    raise self.refuse("\\b{g}", start)
                self.boundaries = True
                self.out.append(f"\\{char}")
                return True
            case "A" | "z":
                self.text_end = self.text_end or char == "z"
                self.out.append(f"\\{char}")
                return True
            case "Q":
                text = self.until("\\E")
                if text is None:
                    text, self.at = self.pattern[self.at :], len(self.pattern)
                if not text:
                    raise self.refuse("\\Q without characters", start)
                self.out += [self.char(ord(one)) for one in text]
                return False
        found = self.escaped(char, start)
        self.out.append(self.char(found) if isinstance(found, int) else f"[{found}]")
        return False

    def escaped(self, char: str, start: int) -> str | int:
        """An escape that is allowed in a class too: an item of a class, or one code point."""
        if char in "dDwW":
            return f"\\{char}"
        if char in "sS":
            return "[:space:]" if char == "s" else "[:^space:]"
        if char in "pP":
            name = self.next()
            name = (self.until("}") or "") if name == "{" else name
            if name not in _POSIX:
                raise self.refuse(f"the class \\{char}{{{name}}}; of \\p there are {', '.join(_POSIX)}:", start)
            if self.any_case and name in ("Lower", "Upper"):
                raise self.refuse(f"\\{char}{{{name}}} without regard to case", start)
            return f"[:{'^' if char == 'P' else ''}{name.lower()}:]"
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "xu":
            return self.coded(char, start)
        if char in _ESCAPES:
            raise self.refuse(_ESCAPES[char], start)
        if char.isdigit():
            raise self.refuse("a backreference", start)
        if char.isascii() and char.isalpha():
            raise self.refuse(f"\\{char}", start)
        return ord(char)

    def coded(self, char: str, start: int) -> int:
        """A character by its code."""
        if char == "x" and self.peek() == "{":
            self.at += 1
            text = self.until("}") or ""
        else:
            digits = 2 if char == "x" else 4
            text = self.pattern[self.at : self.at + digits]
            self.at += digits
            text = text if len(text) == digits else ""
        hexadecimal = 0 < len(text) <= 6 and all(one in "0123456789abcdefABCDEF" for one in text)
        code = int(text, 16) if hexadecimal else -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self.refuse(f"the character \\{char}{text}", start)
        return code

    def char_class(self) -> str:
        start = self.at - 1
        negated = self.peek() == "^"
        self.at += negated
        found = ""
        while not found or self.peek() != "]":
            place = self.at
            if self.at >= len(self.pattern):
                raise self.refuse("a class without its end", start)
            one = self.class_item()
            rest = self.pattern[self.at : self.at + 2]
            if isinstance(one, str):
                if self.any_case and rest[:1] == "-" and rest[1:] not in ("", "]"):
                    raise self.refuse("a range without its start", place)
                found += one
                continue
            last: str | int = one
            if rest[:1] == "-" and rest[1:] not in ("", "]", "["):
                self.at += 1
                last = self.class_item()
            if isinstance(last, str) or last < one:
                raise self.refuse("a range without its end", place)
            found += _either_case(one, last) if self.any_case else _range(one, last)
        self.at += 1
        return f"[{'^' if negated else ''}{found}]"

    def class_item(self) -> str | int:
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
