"""The patterns for usual column chunks take what the loop over the footer takes, and nothing that it refuses.

Tests of engine.parquet.metadata.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.engine.parquet import metadata as module
from refdelta.engine.parquet.metadata import (
    ChunkPattern,
    FooterForm,
    check_footer,
    end_of_schema_element,
    read_footer,
)
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


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("options", OPTIONS[::2])
def test_patterns_and_loop_say_the_same_whatever_bit_is_wrong(options, slow):
    content, metadata = written(options)
    damaged = bytearray(content)
    for place in range(len(content) - 8 - metadata.serialized_size, len(content) - 8):
        for bit in range(8):
            damaged[place] ^= 1 << bit
            assert look(bytes(damaged), metadata) == slow(bytes(damaged), metadata), (place, bit)
            damaged[place] ^= 1 << bit


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
        (described(b"\x16\x04"), True),
        (described(b"\x15\x04"), False),  # of another kind
        (described(b"\x8c", compact(b"\x29\x16\x00")), False),  # sizes, under the number of something else
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


# --- forms of footers --------------------------------------------------------------------------------------------

NOTES = [None, {"a": "b"}, {"a": "c"}, {"org.apache.spark.version": "2.4.0", "a": "b"}]
SCHEMAS = [
    pa.schema([("id", pa.int64()), ("text", pa.string())]),
    pa.schema([("ID", pa.int64()), ("text", pa.string())]),
    pa.schema([("id", pa.int32()), ("text", pa.string())]),
    pa.schema([("id", pa.int64()), ("text", pa.large_string())]),
    pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"}), ("text", pa.string())]),
    pa.schema([("id", pa.int64())]),
]


@given(
    data=st.lists(
        st.tuples(st.sampled_from(SCHEMAS), st.sampled_from(NOTES), st.integers(0, 300), st.booleans()),
        min_size=2,
        max_size=2,
    ),
    rows=st.sampled_from([1, 50, 1000]),
)
@examples(100)
def test_a_form_is_that_of_files_with_the_same_schema_and_notes(tmp_path_factory, data, rows):
    looked = []
    for number, (schema, notes, count, stored) in enumerate(data):
        path = tmp_path_factory.getbasetemp() / f"form-{number}.parquet"
        columns = [pa.array([n * 7 % 31 for n in range(count)]).cast(kind) for kind in schema.types]
        table = pa.table(columns, schema.with_metadata(notes))
        pq.write_table(table, path, store_schema=stored or notes is not None, row_group_size=rows)
        metadata = pq.read_metadata(path)
        looked.append((read_footer(str(path)), metadata, pq.read_schema(path), metadata.metadata))
    (first, metadata, *one), (second, _, *other) = looked
    form = FooterForm.of(first, metadata)
    assert form is not None
    assert form.matches(first)
    same = one[0].equals(other[0], check_metadata=True) and one[1] == other[1]
    assert form.matches(second) == same


def test_a_file_without_a_footer_has_no_form(tmp_path):
    for content in (b"", b"PAR1", b"\xff" * 100, b"PAR1" + b"\x00" * 50 + b"\xff\x00\x00\x00PAR1"):
        (tmp_path / "odd").write_bytes(content)
        assert read_footer(str(tmp_path / "odd")) is None
    sink = io.BytesIO()
    pq.write_table(COLUMNS, sink)
    metadata = pq.ParquetFile(sink).metadata
    assert FooterForm.of(b"\x15\x04\x19\x1c", metadata) is None


# --- forms that were gone through, and headers of pages ----------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_known_head_gives_the_same_result(options, monkeypatch):
    monkeypatch.setattr(module, "_known_heads", ())
    content, metadata = written(options)
    bytes_at = lambda start, length: content[start : start + length]  # noqa: E731
    first = module.examine_footer(metadata, bytes_at, len(content))
    assert [head for head, _ in module._known_heads] == [first[1].head]
    assert module.examine_footer(metadata, bytes_at, len(content)) == first
    assert len(module._known_heads) == 1
    assert first[1].matches(content[-8 - int.from_bytes(content[-8:-4], "little") : -8])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda footer: footer[:-1] + b"\x15\x00" + footer[-1:], None),  # a further field does not matter
        (lambda footer: footer[:-1] + b"\x09\x04\x0c" + footer[-1:], "a field twice"),  # a second schema
        (lambda footer: footer[:-1] + b"\x06\x06\x02" + footer[-1:], "a field twice"),  # a second number of rows
    ],
)
def test_a_known_head_does_not_hide_what_follows(change, reason):
    content, metadata = written({})
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    assert footer[-1] == 0
    for _ in range(2):  # the second time its head is known
        odd = change(footer)
        data = odd + len(odd).to_bytes(4, "little") + b"PAR1"
        look = lambda: module.examine_footer(metadata, lambda start, count: data[start : start + count], len(data))  # noqa: B023, E731
        if reason is None:
            assert look()[0] == frozenset()
        else:
            with pytest.raises(ValueError, match=reason):
                look()


@pytest.mark.parametrize("options", [*OPTIONS, {"write_page_checksum": True}], ids=str)
def test_usual_headers_of_pages_are_read_as_the_loop_reads_them(options, monkeypatch):
    content, metadata = written({"data_page_size": 64, **options})
    found, usual = [], 0
    for loop in (False, True):
        if loop:
            monkeypatch.setattr(module, "_usual_page", lambda _: None)
        for group in range(metadata.num_row_groups):
            for leaf in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(leaf)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                usual += not loop and module._usual_page(content[start : start + 4096]) is not None
                found.append(
                    module.read_page_headers(
                        lambda start, length: content[start : start + length], start, chunk.num_values
                    )
                )
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert usual or "data_page_version" in options


@given(st.data())
@examples(200)
def test_damaged_headers_of_pages_are_refused_by_both_or_read_alike(data):
    content, metadata = written({})
    chunk = metadata.row_group(0).column(data.draw(st.integers(0, metadata.num_columns - 1)))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    header = bytearray(content[start : start + 80])
    header[data.draw(st.integers(0, 30))] = data.draw(st.integers(0, 255))
    header = bytes(header[: data.draw(st.integers(20, 80))])

    def read(parse):
        try:
            return parse(header)
        except (ValueError, IndexError):
            return None

    usual = read(module._usual_page)
    assert usual is None or usual == read(module._any_page)
