"""CSV and JSON files as blocks of records, whose values are text, with the places of records that are malformed.

A block ends with a record, and is parsed at once. Lines are counted and records are delimited again only in a block
with something wrong.
"""

from __future__ import annotations

import abc
import bisect
import collections
import functools
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv

from refdelta.arrow.arrays import one_array
from refdelta.errors import DataFileError

BLOCK = 1 << 22
"""Bytes that are parsed at once."""

MOST = 1 << 26
"""Bytes of the longest record."""

_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Bad(msgspec.Struct, frozen=True):
    """A record that cannot be loaded.

    Attributes:
        line: the line at which it begins, counted from 1.
        reason: what is wrong.
        text: the record, without the end of its line.
        column: the column; None if it is the whole record.
    """

    line: int
    reason: str
    text: bytes
    column: str | None = None

    def error(self, file: str) -> DataFileError:
        """The error that stops a load."""
        column = "" if self.column is None else f", column {self.column}"
        return DataFileError(f"line {self.line}{column}: {self.reason}", file=file)


class Block(abc.ABC):
    """Records of a file.

    Attributes:
        data: their bytes.
        line: the line of the first byte, counted from 1.
        bad: the records that are malformed, which are no rows.
    """

    def __init__(self, data: bytes, line: int) -> None:
        self.data, self.line = data, line
        self.bad: list[Bad] = []

    @cached_property
    @abc.abstractmethod
    def rows(self) -> list[tuple[int, int]]:
        """The first byte of each row, and the one after its last."""

    @cached_property
    def _ends(self) -> list[int]:
        return [found.end() for found in _LINE_END.finditer(self.data)]

    def line_at(self, place: int) -> int:
        """The line of a byte."""
        return self.line + bisect.bisect_right(self._ends, place)

    def at(self, row: int, column: str | None, reason: str) -> Bad:
        """A row that cannot be loaded."""
        start, end = self.rows[row]
        return self.spoiled(start, end, column, reason)

    def spoiled(self, start: int, end: int, column: str | None, reason: str) -> Bad:
        """A record that cannot be loaded, by its bytes."""
        return Bad(self.line_at(start), reason, self.data[start:end].rstrip(b"\r\n"), column)


class _Bytes:
    """The bytes of a file, of which the first are looked at before they are consumed."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self.name = file, name
        self.kept = b""
        self.line = 1
        self.ended = False

    def more(self) -> bool:
        """Read more; False at the end of the file."""
        try:
            found = self._file.read(max(BLOCK, len(self.kept)))
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise DataFileError(f"cannot be read after line {self.line}: {error}", file=self.name) from error
        self.ended = not found
        self.kept += found
        return bool(found)

    def begin(self) -> None:
        """Read the first bytes, and leave out the mark of UTF-8."""
        self.more()
        self.kept = self.kept.removeprefix(_BOM)
        if self.kept.startswith(_OTHER_BOMS):
            raise DataFileError("the text is UTF-16; CSV and JSON are read as UTF-8", file=self.name)

    def take(self, size: int) -> bytes:
        """The next bytes, which must end with a line or be the last."""
        found, self.kept = self.kept[:size], self.kept[size:]
        self.line += found.count(b"\n") + found.count(b"\r") - found.count(b"\r\n")
        return found

    def too_long(self) -> DataFileError:
        """The error for a record without end."""
        return DataFileError(
            f"line {self.line}: the record that begins there is longer than {MOST >> 20} MiB", file=self.name
        )


# --- CSV ---------------------------------------------------------------------------------------------------------


class _Grammar:
    """The patterns of CSV with one delimiter. A quote begins a field in quotes only at its beginning."""

    def __init__(self, delimiter: str) -> None:
        end = re.escape(delimiter.encode())
        text, ends = rb"[^\r\n" + end + rb"]", rb"[\r\n" + end + rb"]"
        plain = rb'(?!")' + text + rb"*+"
        quoted = rb'"[^"]*+(?:""[^"]*+)*+"'
        # Text after the closing quote belongs to the field, unless it has several lines: a quote is missing there.
        # Of the alternatives only one can match, so that nothing is tried twice.
        one_line = rb'"[^"\r\n]*+(?:""[^"\r\n]*+)*+"' + text + rb"++"
        sound = rb"(?:" + quoted + rb"(?=" + ends + rb")|" + one_line + rb"|" + plain + rb")"
        any_field = rb"(?:" + quoted + text + rb"*+|" + plain + rb")"
        line = rb"(?:\r\n|\r|\n)"
        self.field = re.compile(sound)
        self.record = re.compile(sound + rb"(?:" + end + sound + rb")*" + line)
        self.any_record = re.compile(any_field + rb"(?:" + end + any_field + rb")*" + line)
        self.delimiter = delimiter

    def end_of_records(self, data: bytes) -> int:
        """The end of the sound records at the beginning."""
        record: Any = self.record
        last = collections.deque(iter(record.scanner(data).match, None), maxlen=1)
        return last[0].end() if last else 0

    def fields(self, record: bytes) -> list[bytes]:
        """The fields of a sound record, with their quotes."""
        found, place, record = [], 0, record.rstrip(b"\r\n") + b"\n"
        while True:
            field = self.field.match(record, place)
            assert field is not None  # noqa: S101 - any text is a field
            found.append(field[0])
            place = field.end() + 1
            if place >= len(record):
                return found

    def names(self, record: bytes) -> list[str]:
        """The names of a header. Raises ``UnicodeDecodeError``."""
        return [
            (one[1:].replace(b'""', b"\0").replace(b'"', b"").replace(b"\0", b'"') if one[:1] == b'"' else one).decode()
            for one in self.fields(record)
        ]


class CsvBlock(Block):
    """Records of a CSV file, as columns of strings.

    Attributes:
        columns: the values by name; null where a field is empty and has no quotes, or is a text that means null.
    """

    def __init__(self, data: bytes, line: int, names: Sequence[str], grammar: _Grammar, nulls: Sequence[str]) -> None:
        super().__init__(data, line)
        self._names, self._grammar = names, grammar
        self.columns = self._parsed(nulls)

    @cached_property
    def _records(self) -> list[tuple[int, int]]:
        found = (one.span() for one in self._grammar.record.finditer(self.data))
        return [(start, end) for start, end in found if self.data[start:end].strip(b"\r\n")]

    @cached_property
    def rows(self) -> list[tuple[int, int]]:
        """See :class:`Block`."""
        ragged = self._ragged
        return [span for span, wrong in zip(self._records, ragged, strict=True) if not wrong]

    @cached_property
    def _ragged(self) -> list[int]:
        """For each record the number of its fields if it is not that of the header, else 0."""
        counts = (len(self._grammar.fields(self.data[start:end])) for start, end in self._records)
        return [0 if count == len(self._names) else count for count in counts]

    def _parsed(self, nulls: Sequence[str]) -> dict[str, pa.Array]:
        ragged = 0

        def skip(_row: pa.csv.InvalidRow) -> str:
            nonlocal ragged
            ragged += 1
            return "skip"

        def parsed(kind: pa.DataType) -> pa.Table:
            nonlocal ragged
            ragged = 0
            return pa.csv.read_csv(
                pa.BufferReader(self.data),
                pa.csv.ReadOptions(column_names=list(self._names), block_size=len(self.data) + 1, use_threads=False),
                pa.csv.ParseOptions(
                    delimiter=self._grammar.delimiter, newlines_in_values=True, invalid_row_handler=skip
                ),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, kind),
                    null_values=["", *nulls],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )

        if not self.data.strip(b"\r\n"):
            return {name: pa.array([], pa.string()) for name in self._names}
        try:
            table = parsed(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            table = parsed(pa.binary())
        if ragged:
            wanted = len(self._names)
            for (start, end), count in zip(self._records, self._ragged, strict=True):
                if count:
                    problem = f"it has {count} field{'s' if count > 1 else ''}, but the header has {wanted}"
                    self.bad.append(self.spoiled(start, end, None, problem))
        columns = {name: one_array(table.column(name)) for name in self._names}
        return columns if table.schema.types[0] == pa.string() else self._decoded(columns)

    def _decoded(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns without the rows that are not UTF-8."""
        wrong: dict[int, str] = {}
        for name, column in columns.items():
            for row in _not_unicode(column):
                wrong.setdefault(row, name)
        self.bad += [self.at(row, name, "the text is not UTF-8") for row, name in wrong.items()]
        self.bad.sort(key=lambda one: one.line)
        rows = self.rows
        self.rows = [span for row, span in enumerate(rows) if row not in wrong]
        keep = pa.array([row not in wrong for row in range(len(rows))])
        return {name: column.filter(keep).cast(pa.string()) for name, column in columns.items()}


def _not_unicode(column: pa.Array) -> list[int]:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(column.to_pylist()) if value is not None and not _is_unicode(value)]
    return []


def _is_unicode(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class CsvFile:
    """A CSV file.

    Args:
        file: its bytes.
        name: its name, for errors.
        delimiter: the separator of fields.
        nulls: texts that mean null, besides the empty one.

    Attributes:
        names: the columns, by the header.

    Raises:
        DataFileError: the file has no header, or a header with a name twice, an empty one, or one that is not UTF-8.
    """

    def __init__(self, file: IO[bytes], name: str, delimiter: str, nulls: Sequence[str]) -> None:
        self._bytes, self._nulls = _Bytes(file, name), nulls
        self._grammar = _Grammar(delimiter)
        self._bytes.begin()
        self.names = self._header()

    def _header(self) -> list[str]:
        source = self._bytes
        while True:
            found = self._grammar.record.match(source.kept)
            if found is None or (found.end() == len(source.kept) and not source.ended):
                if not source.ended:
                    if len(source.kept) > MOST:
                        raise source.too_long()
                    source.more()
                    continue
                if not source.kept:
                    raise DataFileError(
                        "the file is empty: a CSV file begins with the names of its columns", file=source.name
                    )
                if source.kept[-1:] in (b"\n", b"\r"):
                    raise DataFileError(f"line {source.line}: a quote of the header is not closed", file=source.name)
                source.kept += b"\n"
                continue
            line, header = source.line, source.take(found.end())
            if header.strip(b"\r\n"):
                break
        try:
            names = self._grammar.names(header)
        except UnicodeDecodeError:
            raise DataFileError(f"line {line}: the text is not UTF-8", file=source.name) from None
        seen: set[str] = set()
        for place, one in enumerate(names, 1):
            problem = f"column {place} has no name" if not one.strip() else None
            if one.lower() in seen:
                problem = f"column {one!r} is there twice"
            if problem is not None:
                raise DataFileError(f"line {line}: in the header, {problem}", file=source.name)
            seen.add(one.lower())
        return names

    def blocks(self) -> Iterator[CsvBlock]:
        """The records after the header."""
        source = self._bytes
        while True:
            end, broken = self._sound_end()
            if end:
                line = source.line
                yield CsvBlock(source.take(end), line, self.names, self._grammar, self._nulls)
            if broken:
                # A quote is not closed, or later than its record ends: the next line is a record again.
                line, found = source.line, _LINE_END.search(source.kept)
                lost = source.take(found.end() if found else len(source.kept))
                block = CsvBlock(b"", line, self.names, self._grammar, self._nulls)
                block.bad.append(Bad(line, "a quote is not closed", lost.rstrip(b"\r\n")))
                yield block
            elif not end and source.ended:
                return

    def _sound_end(self) -> tuple[int, bool]:
        """The size of the sound records at the beginning, and whether a malformed one follows."""
        source = self._bytes
        while True:
            data = source.kept
            if source.ended and data and data[-1:] not in (b"\n", b"\r"):
                source.kept = data = data + b"\n"
            # The second half of a line's end may follow.
            known = data if source.ended or data[-1:] != b"\r" else data[:-1]
            if b'"' in known:
                end = self._grammar.end_of_records(known)
            else:
                end = max(known.rfind(b"\n"), known.rfind(b"\r")) + 1
            if end == len(data) and source.ended:
                return end, False
            broken = b'"' in known[end:] and self._grammar.any_record.match(known, end) is not None
            if broken or (end and not source.ended):
                return end, broken
            if source.ended:
                return end, bool(data[end:])
            if len(data) > MOST:
                if b'"' in data:
                    return end, True
                raise source.too_long()
            source.more()


# --- JSON --------------------------------------------------------------------------------------------------------


class Number(str):
    """A number of JSON with a fraction or an exponent, as it is written."""

    __slots__ = ()


_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any], float_hook=Number)


class JsonBlock(Block):
    """Objects of a JSON file.

    Attributes:
        values: the objects; numbers with a fraction or an exponent are of :class:`Number`.
    """

    def __init__(self, data: bytes, line: int, lines: bytes, parts: Callable[[], list[tuple[int, int]]]) -> None:
        super().__init__(data, line)
        self._parts = parts
        try:
            self.values: list[dict[str, Any]] = _OBJECT.decode_lines(lines)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            self.values = self._sound()

    @cached_property
    def rows(self) -> list[tuple[int, int]]:
        """See :class:`Block`."""
        return self._spans()

    def _spans(self) -> list[tuple[int, int]]:
        found = []
        for start, end in self._parts():
            text = self.data[start:end]
            if text.strip():
                found.append((start + len(text) - len(text.lstrip()), start + len(text.rstrip())))
        return found

    def _sound(self) -> list[dict[str, Any]]:
        found, rows = [], []
        for start, end in self._spans():
            text = self.data[start:end]
            try:
                found.append(_OBJECT.decode(text))
                rows.append((start, end))
            except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
                column = None
                if not _is_unicode(text):
                    column, problem = _foreign_column(text), "the text is not UTF-8"
                else:
                    problem = f"it is no JSON object on a line: {error}"
                self.bad.append(self.spoiled(start, end, column, problem))
        self.rows = rows
        return found


def _foreign_column(text: bytes) -> str | None:
    """The column with text that is not UTF-8, if the rest is sound."""
    try:
        row = _OBJECT.decode(text.decode(errors="replace").encode())
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return next((name for name, value in row.items() if "\ufffd" in str(value)), None)


class JsonFile:
    """A file of JSON objects: one on each line, or in one array.

    Args:
        file: its bytes.
        name: its name, for errors.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._bytes = _Bytes(file, name)

    def blocks(self) -> Iterator[JsonBlock]:
        """The objects.

        Raises:
            DataFileError: an array does not end, or something follows it.
        """
        source = self._bytes
        source.begin()
        while not (start := len(source.kept) - len(source.kept.lstrip())) < len(source.kept):
            source.take(start)
            if not source.more():
                return
        if source.kept[start : start + 1] == b"[":
            source.take(start + 1)
            yield from self._elements()
        else:
            yield from self._lines()

    def _lines(self) -> Iterator[JsonBlock]:
        source = self._bytes
        while source.kept or not source.ended:
            if source.ended:
                end = len(source.kept)
            else:
                end = max(source.kept.rfind(b"\n"), source.kept.rfind(b"\r", 0, len(source.kept) - 1)) + 1
            if end:
                line = source.line
                data = source.take(end)
                lines = data.replace(b"\r", b"\n") if b"\r" in data else data
                yield JsonBlock(data, line, lines, functools.partial(_line_spans, data))
            elif len(source.kept) > MOST:
                raise source.too_long()
            else:
                source.more()

    def _elements(self) -> Iterator[JsonBlock]:
        source = self._bytes
        while True:
            data = source.kept
            commas, close, lines = _array_parts(data)
            done = close is not None
            end = close if close is not None else (int(commas[-1]) + 1 if len(commas) else 0)
            if end:
                line = source.line
                yield JsonBlock(source.take(end), line, lines[:end], functools.partial(_between, commas, end))
            if done:
                source.take(1)
                self._check_end()
                return
            if not end and len(data) > MOST:
                raise source.too_long()
            if not source.more():
                source.take(len(source.kept) - len(source.kept.lstrip()))
                raise DataFileError(
                    f"line {source.line}: the array of objects does not end; is the file cut off?", file=source.name
                )

    def _check_end(self) -> None:
        source = self._bytes
        while True:
            rest = source.kept.strip()
            if rest:
                start = len(source.kept) - len(source.kept.lstrip())
                source.take(start)
                raise DataFileError(f"line {source.line}: there is text after the array of objects", file=source.name)
            source.take(len(source.kept))
            if not source.more():
                return


def _line_spans(data: bytes) -> list[tuple[int, int]]:
    return [one.span() for one in re.finditer(rb"[^\r\n]+", data)]


def _between(commas: np.ndarray[Any, np.dtype[np.int64]], end: int) -> list[tuple[int, int]]:
    ends = [*(int(one) for one in commas if one < end), end]
    return list(zip([0, *(one + 1 for one in ends[:-1])], ends, strict=True))


def _array_parts(data: bytes) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int | None, bytes]:
    """The commas between the elements of an array, the bracket at its end, and the elements on a line each.

    Args:
        data: the array from an element on.
    """
    text = np.frombuffer(data, np.uint8)
    quotes = text == ord('"')
    slashes = text == ord("\\")
    if slashes.any():
        # A quote after an odd number of backslashes belongs to the string.
        places, others = np.flatnonzero(quotes), np.flatnonzero(~slashes)
        before = np.searchsorted(others, places) - 1
        last = np.where(before >= 0, others[np.maximum(before, 0)], -1) if len(others) else np.full(len(places), -1)
        quotes[places[(places - last - 1) % 2 == 1]] = False
    outside = np.cumsum(quotes, dtype=np.int32) % 2 == 0
    opening, closing = (text == ord("{")) | (text == ord("[")), (text == ord("}")) | (text == ord("]"))
    steps = (opening & outside).astype(np.int8) - (closing & outside).astype(np.int8)
    depth = np.cumsum(steps, dtype=np.int32)
    ended = np.flatnonzero(depth < 0)
    close = int(ended[0]) if len(ended) else None
    commas = np.flatnonzero((text == ord(",")) & outside & (depth == 0))
    if close is not None:
        commas = commas[commas < close]
    lines = text.copy()
    lines[((text == ord("\n")) | (text == ord("\r"))) & outside] = ord(" ")
    lines[commas] = ord("\n")
    return commas, close, lines.tobytes()
