"""What a Parquet file may unfold to: the memory of a batch is bounded by what its pages say, never by trust.

A page of some hundred bytes can stand for billions of values: a dictionary holds one long text that every row repeats,
runs repeat one number, compression repeats anything. So before a row group is decoded, the headers of its pages are
looked at (Parquet's specification, "Data Pages"), for those columns that can unfold: of variable width, or repeated.
Where 64K rows might take more than :data:`BATCH_BYTES`, fewer rows make a batch. What no number of rows could bound is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refdelta.engine.parquet.footer import check_footer
from refdelta.engine.parquet.page_headers import PageHeader, read_page_headers, texts_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

BATCH_BYTES = 2**30
"""What the columns of a batch may take together, in bytes, where fewer rows can see to that."""

DICTIONARY_BYTES = 2**30
"""What the dictionary of a column of a row group may take: it is held while the row group is read."""

ROW_BYTES = 2**32
"""What one row may take, and the pages that it lies in: no number of rows bounds that."""

UNFOLDED = 1000
"""How many times its stored bytes may be held at once, where that is more than :data:`ROW_BYTES`: of a repeated column
of a row group, since a single row may have all of it, and of a checkpoint.
"""

BytesAt = Callable[[int, int], bytes | memoryview]
"""The bytes of a file from a position on, so many or as many as there are."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "INT96": 12}
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
_HELD_ROWS = 32 * 1024  # pieces that are kept: what a batch takes while it grows is up to as much again
_MANY_ROWS = 2**24
_WIDEST = 2**20  # of columns of a fixed width, of which Delta has decimals only
_PLACE = 3  # bytes that a value takes less than, where it is but a place in a small dictionary
_FULL = 2**20  # bytes at which writers give a dictionary up and write texts by themselves
_LEVELS = 4  # bytes that each value of a repeated column takes for its place


class BoundedParquetFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A ``ParquetFile`` whose batches have as many rows as are asked for, or fewer where these take too much memory.

    Args:
        source: what pyarrow reads from; it is closed with the file.
        bytes_at: gives bytes of it.
        options: for ``ParquetFile``.

    Attributes:
        far: whether each look at it is a request.
    """

    far = False

    def __init__(self, source: Any, bytes_at: BytesAt, **options: Any):
        super().__init__(source, pre_buffer=False, **options)
        self._input, self._bytes_at, self._options = source, bytes_at, options
        self._places: frozenset[str] = frozenset()

    @cached_property
    def without_bounds(self) -> frozenset[int]:
        """The numbers of the leaf columns for whose statistics pyarrow must not be asked. Raises as :attr:`footer`."""
        return check_footer(self.metadata, self._bytes_at, self._input.size())

    @property
    def footer(self) -> Any:
        """The file's ``FileMetaData``, whose row groups pyarrow can be asked about.

        Raises:
            ValueError: it contradicts itself.
        """
        _ = self.without_bounds
        return self.metadata

    def keep_dictionaries(self, columns: Sequence[str]) -> dict[str, bool]:
        """Read texts as places in a dictionary from now on, where the file has all of them so, as far as it says that.

        What they take in memory when texts are made of the places is not bounded then: see :func:`unfolding`.

        Args:
            columns: names of columns of texts. A file may still hold some of them in other ways.

        Returns:
            Those that are read so, each with whether its dictionary is small. Raises as :attr:`footer`.
        """
        footer, found = self.footer, dict[str, bool]()
        for leaf in wanted_leaves(footer, columns):
            path = footer.schema.column(leaf).path
            small = _dictionary(footer, leaf) if path in columns else None
            if small is not None:
                found[path] = small
        if found:
            options = {**self._options, "metadata": footer, "read_dictionary": list(found)}
            super().__init__(self._input, pre_buffer=False, **options)
            self._places = frozenset(found)
        return found

    def close(self, force: bool = False) -> None:  # noqa: ARG002 - the source is ours
        """As that of ``ParquetFile``, with the source."""
        super().close(force=True)

    def iter_batches(
        self,
        batch_size: int = 64 * 1024,
        row_groups: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """As that of ``ParquetFile``. Raises ``ValueError`` for a row group that would take too much memory."""
        groups = range(self.metadata.num_row_groups) if row_groups is None else row_groups
        for rows, run in self._runs(batch_size, groups, columns):
            yield from super().iter_batches(rows, row_groups=run, columns=columns, **options)

    def iter_held_batches(
        self, columns: Sequence[str], row_groups: Iterable[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All batches, for who keeps them all. Raises ``ValueError`` where they take too much memory together."""
        most, held = max(ROW_BYTES, UNFOLDED * self._input.size()), 0
        for batch in self.iter_batches(_HELD_ROWS, row_groups, columns, use_threads=False):
            held += batch.nbytes
            if held > most:
                raise ValueError(f"its columns would take more than {most:,} bytes")
            yield batch

    def row_groups_with(self, columns: Collection[str]) -> list[int]:
        """The row groups in which one of some columns has a value, or may have: each is a path to a leaf. Those where
        the footer counts as many nulls as rows are left out; none is, where a column is not in the file. Raises as
        :attr:`footer`.
        """
        footer, odd = self.footer, self.without_bounds
        leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path in columns]

        def may_have(number: int) -> bool:
            group = footer.row_group(number)
            return any(leaf in odd or not _all_null(group.column(leaf), group.num_rows) for leaf in leaves)

        return [number for number in range(footer.num_row_groups) if len(leaves) < len(columns) or may_have(number)]

    def _runs(self, most: int, groups: Iterable[int], columns: Sequence[str] | None) -> Iterator[tuple[int, list[int]]]:
        """Row groups that follow each other with as many rows to a batch, and how many."""
        rows, run = most, list[int]()
        for group in groups:
            bound = self._rows_at_once(group, most, columns)
            if run and bound != rows:
                yield rows, run
                run = []
            rows = bound
            run.append(group)
        if run:
            yield rows, run

    def _rows_at_once(self, number: int, most: int, columns: Sequence[str] | None) -> int:
        group = self.footer.row_group(number)
        leaves = wanted_leaves(self.metadata, columns)
        if not leaves and self.metadata.num_columns and group.num_rows > _MANY_ROWS:
            self._check_rows(number, group)
        costs = [cost for leaf in leaves if (cost := self._cost(number, group, leaf, most)) is not None]
        rows = most
        while (bytes_ := sum(cost.of(rows) for cost in costs)) > BATCH_BYTES and rows > 1:
            rows //= 2
        if rows == 1 and bytes_ > ROW_BYTES:
            raise ValueError(f"a row of row group {number} may take {bytes_:,} bytes")
        return rows

    def _check_rows(self, number: int, group: Any) -> None:
        """Rows without columns cost their reader time: so many there are indeed."""
        chunk, column = group.column(0), self.metadata.schema.column(0)
        pages = self._pages(number, column.path, chunk, 0)
        if column.max_repetition_level == 0 and group.num_rows > sum(p.values for p in pages if not p.is_dictionary):
            raise ValueError(f"row group {number} says that it has {group.num_rows:,} rows, and has fewer")

    def _pages(self, number: int, path: str, chunk: Any, width: int) -> list[PageHeader]:
        """The pages of a column of a row group; where only a dictionary can unfold, the first, which it would be."""
        if chunk.num_values == 0:
            return []  # a file without rows has no pages, and pyarrow looks for none
        start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < start:  # some writers put 0 for none
            start = dictionary
        pages = read_page_headers(self._bytes_at, start, 0 if width else chunk.num_values)
        for page in pages:
            # An entry has its bytes there: as many as a value has, or at least its length, which takes four.
            if page.is_dictionary and (page.size > DICTIONARY_BYTES or page.values * (width or 4) > page.size):
                raise ValueError(
                    f"column {path} of row group {number} has a dictionary of {page.values:,} values, "
                    f"of {page.size:,} bytes"
                )
        return pages

    def _cost(self, number: int, group: Any, leaf: int, most: int) -> _Cost | None:
        column, chunk = self.metadata.schema.column(leaf), group.column(leaf)
        repeated = column.max_repetition_level > 0
        fixed = chunk.physical_type == "FIXED_LEN_BYTE_ARRAY"
        width = column.length if fixed else _WIDTHS.get(chunk.physical_type, 0)
        if width > _WIDEST:
            raise ValueError(f"column {column.path} has values of {width:,} bytes each")
        if width and not repeated:
            self._pages(number, column.path, chunk, width)
            return _Cost([], [], width) if width > BATCH_BYTES // most else None
        pages = self._pages(number, column.path, chunk, 0)
        data = [page for page in pages if not page.is_dictionary]
        longest = 0 if width or column.path in self._places else self._longest(number, leaf, pages, most)
        if not repeated:
            # What each row may have that its page has not: an entry of the dictionary, or what others begin with.
            prefix = max((page.size for page in data if page.by_prefix), default=0)
            return _Cost([page.values for page in data], [page.size for page in data], max(longest, prefix))
        whole = sum(page.unfolded(width or longest) + _LEVELS * page.values for page in data)
        if whole > max(ROW_BYTES, UNFOLDED * chunk.total_compressed_size):
            raise ValueError(f"column {column.path} of row group {number} would take {whole:,} bytes")
        return _Cost([], [], whole / max(group.num_rows, 1))

    def _longest(self, number: int, leaf: int, pages: list[PageHeader], most: int) -> int:
        """How many bytes the longest value of a dictionary may have; 0 where there is none."""
        found = max((page.size - 4 * page.values for page in pages if page.is_dictionary), default=0)
        repeats = sum(page.values for page in pages if page.by_dictionary)
        if found * min(repeats, most) <= BATCH_BYTES // 4:
            return found
        # Its size does not say: most dictionaries are long because they have many entries. So it is read by itself.
        codec = _CODECS.get(self.metadata.row_group(number).column(leaf).compression)
        entries = [self._entries(page, codec) for page in pages if page.is_dictionary]
        return max((_longest_entry(one) for one in entries if one is not None), default=0) if all(entries) else found

    def _entries(self, page: PageHeader, codec: int | None) -> pq.ParquetFile | None:
        """A file with what a dictionary holds; None where that cannot be told."""
        body = bytes(self._bytes_at(*page.place))
        if codec is None or len(body) < page.place[1]:
            return None
        return pq.ParquetFile(pa.BufferReader(texts_file(page, body, codec)), pre_buffer=False)


@dataclass(frozen=True)
class _Cost:
    """What some rows of a column take at most.

    Attributes:
        values: how many values each page has, a row each.
        sizes: what each page takes when it is decoded, in bytes.
        a_row: what each row takes beside its share of the pages, in bytes; for columns without pages here, all of it.
    """

    values: list[int]
    sizes: list[int]
    a_row: float

    def of(self, rows: int) -> int:
        """What so many rows take that follow each other, wherever they begin."""
        most = held = between = first = 0
        for last, size in enumerate(self.sizes):
            held += size
            between += self.values[last - 1] if last - 1 > first else 0
            # They touch two pages if all rows between these are theirs, and one more in each.
            while first < last and between > rows - 2:
                held -= self.sizes[first]
                first += 1
                between -= self.values[first] if first < last else 0
            most = max(most, held)
        return most + int(self.a_row * rows)


def _all_null(chunk: Any, rows: int) -> bool:
    found = chunk.statistics
    return found is not None and found.has_null_count and found.null_count == rows


def _dictionary(footer: Any, leaf: int) -> bool | None:
    """Whether the dictionary of a column of texts is small; None where it has none, or texts beside it."""
    chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
    if any(chunk.dictionary_page_offset is None for chunk in chunks):
        return None
    sizes = [chunk.total_uncompressed_size for chunk in chunks]
    # Each text that is written by itself has its length beside it.
    if sum(sizes) < _PLACE * sum(chunk.num_values for chunk in chunks):
        return True
    return False if max(sizes, default=0) < _FULL else None


def unfolding(batch: pa.RecordBatch) -> int:
    """How many of a batch's rows stay within :data:`BATCH_BYTES` when its dictionaries of texts are made texts."""
    rows: int = batch.num_rows
    dictionaries = [column.dictionary for column in batch.columns if _is_encoded_text(column.type)]
    if sum(dictionary.nbytes for dictionary in dictionaries) * rows <= BATCH_BYTES:
        return rows  # as most are
    width = sum(pc.max(pc.binary_length(dictionary)).as_py() or 0 for dictionary in dictionaries)
    return rows if width * rows <= BATCH_BYTES else max(1, int(BATCH_BYTES // width))


def _is_encoded_text(kind: pa.DataType) -> bool:
    """Whether a column is a dictionary of texts. Arrow's files may ask for dictionaries of others, too."""
    return bool(pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _longest_entry(entries: pq.ParquetFile) -> int:
    batches = entries.iter_batches(use_threads=False)
    return max((pc.max(pc.binary_length(batch.column(0))).as_py() for batch in batches), default=0)


def wanted_leaves(footer: Any, columns: Sequence[str] | None) -> Sequence[int]:
    """The numbers of the leaf columns of some columns, each of which is given by a path to it or to what holds it."""
    if columns is None:
        return range(footer.num_columns)
    wanted = set(columns)
    schema = footer.schema
    return [leaf for leaf in range(footer.num_columns) if _is_under(schema.column(leaf).path, wanted)]


def _is_under(path: str, wanted: set[str]) -> bool:
    # A dot may be part of a name as well: then some bytes too many are fetched, and pyarrow reads what it should.
    end = len(path)
    while end > 0:
        if path[:end] in wanted:
            return True
        end = path.rfind(".", 0, end)
    return False
