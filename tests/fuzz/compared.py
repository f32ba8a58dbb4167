"""Footers and page headers with changed fields: what our reader accepts, pyarrow reads in the same way.

The inputs are those of :mod:`fuzz.footers`, in files. pyarrow's own view of a footer is its ``FileMetaData``. It shows
no page headers: those that our reader accepts are written once more with the values that it found, in the usual form,
and pyarrow has to read both files alike. These targets run in children with limits, and keep no input.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.footers import Writer, changed, changed_footer, pages, seeds, sound
from fuzz.targets import Target
from fuzz.written import BYTE_ARRAY, column, parquet_file
from fuzz.written import I32 as Small
from fuzz.written import thrift as written
from refdelta.engine.parquet.files import data_errors
from refdelta.engine.parquet.metadata import I32, I64, LIST, STRUCT, CompactReader, check_footer, read_page_headers

# --- footers -----------------------------------------------------------------------------------------------------


def footer(seed: bytes) -> Any:
    """Read a file with a changed footer: what the check accepts is what pyarrow has."""
    which = Random(seed + b"f").randrange(len(sound()))
    sound_file, changed_one = sound()[which], changed_footer(seed, which)
    length = int.from_bytes(sound_file[-8:-4], "little")
    data = sound_file[: -8 - length] + changed_one + len(changed_one).to_bytes(4, "little") + sound_file[-4:]
    with data_errors("x.parquet"):
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        odd = check_footer(metadata, lambda start, length: data[start : start + length], len(data))
    theirs = _by_pyarrow(metadata, odd)
    length = int.from_bytes(data[-8:-4], "little")
    try:
        ours = _by_us(data[-8 - length : -8])
    except ValueError:
        return "a number of these stands there twice; only pyarrow's is used"
    except IndexError:
        ours = "nothing, since our reader goes beyond the end"
    assert ours == theirs, f"{ours} is {theirs} by pyarrow"
    return len(theirs)


def _by_pyarrow(metadata: Any, odd: frozenset[int]) -> list[Any]:
    """The numbers of the columns by pyarrow, which is asked for all else too."""
    found: list[Any] = [metadata.num_rows]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        found.append(group.num_rows)
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            if leaf not in odd:
                str(chunk.to_dict())
            places = (chunk.data_page_offset, chunk.dictionary_page_offset)
            found.append([chunk.num_values, chunk.total_uncompressed_size, chunk.total_compressed_size, *places])
    return found


_NUMBERS = {5: I64, 6: I64, 7: I64, 9: I64, 11: I64}


def _by_us(footer: bytes) -> list[Any]:
    reader = CompactReader(footer, "the footer", deepest=60)
    rows, groups = 0, list[Any]()
    for top in reader.fields({3: I64, 4: LIST}):
        if top == 3:
            rows = reader.integer()
            continue
        for _ in range(reader.length(STRUCT)):
            size, chunks = 0, list[Any]()
            for part in reader.fields({1: LIST, 3: I64}):
                if part == 3:
                    size = reader.integer()
                    continue
                for _ in range(reader.length(STRUCT)):
                    numbers = dict[int, int]()
                    for _ in reader.fields({3: STRUCT}):
                        numbers = {number: reader.integer() for number in reader.fields(_NUMBERS)}
                    chunks.append([numbers.get(number) for number in _NUMBERS])
            groups += [size, *chunks]
    return [rows, *groups]


# --- page headers ------------------------------------------------------------------------------------------------


def headers(seed: bytes) -> Any:
    """Read pages of which one has a changed header: by our view of it, they are the same to pyarrow."""
    kind, trees, values = pages(Random(seed + b"h"))
    which = Random(seed + b"w").randrange(len(trees))
    stored = [(Writer().struct(head), body) for head, body in trees]
    stored[which] = (changed(seed, trees[which][0]), trees[which][1])

    def file(parts_: list[tuple[bytes, bytes]]) -> bytes:
        schema = column(kind, string=kind == BYTE_ARRAY)
        parts = [head + body for head, body in parts_]
        return parquet_file(schema, parts, kind=kind, values=values)

    data = file(stored)
    start = 4 + sum(len(head) + len(body) for head, body in stored[:which])
    first = len(stored[which][0])
    with data_errors("x.parquet"):
        # As many values as the changed page has, so that no page after it is looked at.
        found = read_page_headers(lambda at, length: data[at : at + length], 4, values)
    here = next((page for page in found if page.place[0] >= start and page.place[0] == start + first), None)
    if here is None:
        return "another kind"
    numbers = (here.size, here.place[1], here.values, here.encoding)
    assert max(numbers) < 2**31, f"numbers of more than 32 bits, of which pyarrow keeps 32: {numbers}"
    again = list(stored)
    inner = {1: Small(here.values), 2: Small(here.encoding)}
    number = 7 if here.is_dictionary else 5
    try:
        tail = {} if here.is_dictionary else _of_levels(data[start:])
    except ValueError:
        return "encodings of levels that are no number, or twice there"
    head = {
        1: Small(2 if here.is_dictionary else 0),
        2: Small(here.size),
        3: Small(here.place[1]),
        number: inner | tail,
    }
    again[which] = (written(head), stored[which][1])
    ours, theirs = _read(file(again)), _read(data)
    assert ours == theirs or theirs is None, f"pyarrow reads {theirs}, of our view of the header {ours}"
    return ours


def _of_levels(header: bytes) -> dict[int, Any]:
    """The encodings of levels, on which no bound depends."""
    reader = CompactReader(header, "a page's header", deepest=8)
    found = {}
    for _ in reader.fields({5: STRUCT}):
        found = {number: Small(reader.integer(32)) for number in reader.fields({3: I32, 4: I32})}
    return found


def _read(data: bytes) -> Any:
    try:
        return hash(str(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).to_pylist()))
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None


TARGETS = (
    Target("footers-compared", footer, "bytes", 20, seeds, outside=True),
    Target("page-headers-compared", headers, "bytes", 20, seeds, outside=True),
)
