"""The patterns for usual column chunks take what the loop over the footer takes, and nothing that it refuses."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.engine.parquet import metadata as module
from refdelta.engine.parquet.metadata import ChunkPattern, check_footer, end_of_schema_element
from tiers import examples

COLUMNS = pa.table(
    {
        "long": pa.array([1, None, 3, 2**40] * 5, pa.int64()),
        "int": pa.array(range(20), pa.int32()),
        "text": ["a", None, "b" * 100, ""] * 5,
        "long text": ["c" * 200] * 20,
        "truth": [True, False] * 10,
        "float": [1.5, float("nan")] * 10,
        "fixed": pa.array([b"12345"] * 20, pa.binary(5)),
        "list": [[1, 2], None, []] * 6 + [[7], [8]],
        "struct": [{"a": 1, "b.c": [{"d": "x"}]}, None] * 10,
        "nothing": pa.nulls(20, pa.int64()),
        "moment": pa.array(range(20), pa.timestamp("us")),
    }
)
OPTIONS = [
    {},
    {"row_group_size": 7, "use_dictionary": False, "compression": "none"},
    {"write_statistics": False, "write_page_index": True},
    {"version": "1.0", "data_page_version": "2.0", "use_deprecated_int96_timestamps": True, "row_group_size": 10},
]


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Take patterns at once, not only when they have been asked for often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COMPILE_AFTER", 0)
        yield


def written(options):
    sink = io.BytesIO()
    pq.write_table(COLUMNS, sink, **options)
    content = sink.getvalue()
    return content, pq.ParquetFile(io.BytesIO(content)).metadata


def look(content, metadata):
    """What the check says of a footer that is in these bytes."""
    try:
        return check_footer(metadata, lambda start, length: content[start : start + length], len(content))
    except ValueError:
        return "refused"


@pytest.fixture
def slow(monkeypatch):
    """Look with the loop alone."""

    def check(content, metadata):
        with monkeypatch.context() as patch:
            patch.setattr(ChunkPattern, "end", lambda self, data, at: None)
            patch.setattr(module, "end_of_schema_element", lambda data, at: None)
            return look(content, metadata)

    return check


@pytest.mark.parametrize("options", OPTIONS)
def test_usual_files_need_no_loop(options, monkeypatch):
    content, metadata = written(options)
    taken = []
    end = ChunkPattern.end
    monkeypatch.setattr(ChunkPattern, "end", lambda *args: taken.append(end(*args)) or taken[-1])
    assert look(content, metadata) == frozenset()
    elements = []
    monkeypatch.setattr(
        module,
        "end_of_schema_element",
        lambda *args: elements.append(end_of_schema_element(*args)) or elements[-1],
    )
    look(content, metadata)
    assert elements.count(None) <= 1  # one note beside the rows, of Arrow's schema, is long
    assert len(elements) > metadata.num_columns
    del taken[len(taken) // 2 :]
    assert len(taken) == metadata.num_columns * metadata.num_row_groups
    # Bounds of 128 bytes and more are left to the loop, and names with dots.
    assert sum(found is None for found in taken) <= 2 * metadata.num_row_groups


@pytest.mark.parametrize("options", OPTIONS)
def test_patterns_and_loop_say_the_same_of_damaged_footers(options, slow):
    content, metadata = written(options)
    first = len(content) - 8 - metadata.serialized_size
    assert look(content, metadata) == slow(content, metadata) == frozenset()

    @examples(150)
    @given(
        st.lists(st.tuples(st.integers(first, len(content) - 9), st.integers(0, 255)), min_size=1, max_size=3),
        st.booleans(),
    )
    def check(changes, flip):
        damaged = bytearray(content)
        for place, value in changes:
            damaged[place] = damaged[place] ^ (1 << value % 8) if flip else value
        assert look(bytes(damaged), metadata) == slow(bytes(damaged), metadata)

    check()


def compact(*fields):
    return b"".join(fields) + b"\0"


def chunk(meta, *, head=b"\x26\x08\x1c"):
    return compact(head + meta)


def described(*more, kind=b"\x04"):
    """A column chunk of 64-bit numbers with the path "x", and fields behind its path."""
    return chunk(
        compact(b"\x15", kind, b"\x19\x15\x00", b"\x19\x18\x01x", b"\x15\x02\x16\x08\x16\x08\x16\x08\x26\x08", *more)
    )


NUMBER = b"\x08" + bytes(8)


@pytest.mark.parametrize(
    ("content", "taken"),
    [
        (described(), True),
        (described(kind=b"\x02"), False),  # another type
        (described(b"\x3c", compact(b"\x18", NUMBER, b"\x18", NUMBER)), True),
        (described(b"\x3c", compact(b"\x18\x04abcd")), False),  # a bound that is too short
        (
            described(b"\x7c", compact(b"\x29\x06", b"\x19\x26\x00\x00")),
            True,
        ),  # no repetition levels, two of definition
        (described(b"\x7c", compact(b"\x29\x16\x00", b"\x19\x26\x00\x00")), True),
        (described(b"\x7c", compact(b"\x29\x26\x00\x00")), False),  # one repetition level too many
        (described(b"\x7c", compact(b"\x16\x08\x29\x36\x00\x00\x00")), False),  # one definition level too many
        (described(b"\x7c", compact(b"\x39\x36\x00\x00\x00")), False),
        (described(b"\x15\x04"), True),
        (described(b"\x05\x02\x04"), False),  # the type again, by its number
        (described(b"\xf5\x00" * 40), False),  # numbers that would come round to it
    ],
)
def test_what_is_taken(content, taken):
    assert ChunkPattern("x", 2, 8, 0, 1).end(content + b"more", 0) == (len(content) if taken else None)
    assert ChunkPattern("y", 2, 8, 0, 1).end(content, 0) is None
    assert ChunkPattern("x", 2, 8, 0, 1).end(content[:-1], 0) is None


def test_a_pattern_is_compiled_once_it_is_asked_often(monkeypatch):
    monkeypatch.setattr(module, "_COMPILE_AFTER", 3)
    pattern = module._LazyPattern(b"a.")
    assert [pattern.match(b"xa\n", 1) is None for _ in range(5)] == [True, True, True, False, False]
    assert pattern.match(b"xb", 1) is None
