"""Limits of the memory that reading a Parquet file takes, derived from its page headers before anything is decoded.

A page of some hundred bytes can stand for billions of values: a dictionary holds one long text that every row repeats,
runs repeat one number, compression repeats anything. So the page headers of a row group are read first (Parquet's
specification, "Data Pages"), for the columns that can grow: of variable width, or repeated. If 64K rows may take more
than :data:`BATCH_BYTES`, a batch has fewer rows. A row group that no number of rows would bound is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refdelta.engine.parquet.metadata import (
    PHYSICAL_WIDTHS,
    BytesAt,
    FooterForm,
    PageHeader,
    dictionary_file,
    examine_footer,
    read_page_headers,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

BATCH_BYTES = 2**30
"""The limit of the columns of a batch together, in bytes, as long as fewer rows can keep it."""

DICTIONARY_BYTES = 2**30
"""The limit of a column's dictionary in a row group, in bytes. It is held while the row group is read."""

ROW_BYTES = 2**32
"""The limit of one row with its pages, in bytes, which no number of rows bounds."""

UNFOLDED = 1000
"""The limit of a repeated column of a row group, a single row of which may have all of it, and of a checkpoint: so many
times the stored bytes, if that is more than :data:`ROW_BYTES`.
"""

FEW_ROWS = 8 * 1024
"""Files with fewer rows are read by one thread, and all columns at once: nothing else is worth its overhead."""

_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
_HELD_ROWS = 32 * 1024  # of batches that are kept: while a batch grows, it takes up to twice its memory
_MANY_ROWS = 2**24
_WIDEST = 2**20  # bytes of a value of fixed width, which only decimals have in Delta
_INDEX = 3  # a value takes fewer bytes if it is an index into a small dictionary
_FULL = 2**20  # bytes of a dictionary at which writers give it up, and write plain strings
_LEVELS = 4  # bytes of a value of a repeated column for its levels


class BoundedParquetFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A ``ParquetFile`` whose batches have the requested number of rows, or fewer if these take too much memory.

    Args:
        source: the input of pyarrow; it is closed with the file.
        bytes_at: returns bytes of the file.
        options: for ``ParquetFile``.

    Attributes:
        far: whether each read is a request over a network.
        use_threads: whether columns are decoded in parallel, unless an argument says so.
    """

    far = False
    use_threads = True

    def __init__(self, source: Any, bytes_at: BytesAt, **options: Any):
        super().__init__(source, pre_buffer=False, **options)
        self._input, self._bytes_at, self._options = source, bytes_at, options
        self._places: frozenset[str] = frozenset()
        self._leaves: dict[Sequence[str] | None, Sequence[int]] = {}
        self._costs: dict[tuple[int, int, int], _Cost | None] = {}

    @cached_property
    def examined(self) -> tuple[frozenset[int], FooterForm | None]:
        """The result of the check of the footer, which another reader of the file may take over. Errors as for
        :attr:`footer`.
        """
        return examine_footer(self.metadata, self._bytes_at, self._input.size())

    @property
    def without_bounds(self) -> frozenset[int]:
        """The numbers of the leaf columns whose statistics must not be asked for. Errors as for :attr:`footer`."""
        return self.examined[0]

    @property
    def form(self) -> FooterForm | None:
        """The form of the footer: files of one form have the same schema and notes. None if it has an unusual order.

        Errors as for :attr:`footer`.
        """
        return self.examined[1]

    @property
    def footer(self) -> Any:
        """The file's ``FileMetaData``, checked.

        Raises:
            ValueError: it contradicts itself.
        """
        _ = self.without_bounds
        return self.metadata

    def keep_dictionaries(self, columns: Sequence[str]) -> dict[str, bool]:
        """Read columns of strings as dictionaries from now on, if the footer suggests that the file holds them so.

        The memory that they take when they are decoded later is not bounded: see :func:`unfolding`.

        Args:
            columns: names of string columns.

        Returns:
            The columns that are read as dictionaries, each with whether its dictionary is small.

        Raises:
            ValueError: the footer contradicts itself.
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
            self._costs.clear()
        return found

    def close(self, force: bool = False) -> None:  # noqa: ARG002 - the source is ours
        """Same as ``ParquetFile.close``; closes the source too."""
        super().close(force=True)

    def iter_batches(
        self,
        batch_size: int = 64 * 1024,
        row_groups: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Same as ``ParquetFile.iter_batches``. Raises ``ValueError`` if a row group would take too much memory."""
        groups = range(self.metadata.num_row_groups) if row_groups is None else row_groups
        # For few rows, to wake other threads takes longer.
        options.setdefault("use_threads", self.use_threads and self.metadata.num_rows >= FEW_ROWS)
        for rows, run in self._runs(batch_size, groups, columns):
            yield from super().iter_batches(rows, row_groups=run, columns=columns, **options)

    def batch_rows(self, most: int, row_groups: Iterable[int], columns: Sequence[str]) -> int:
        """The number of rows, at most ``most``, that a batch of any of these row groups may have.

        Iterators over parts of the columns that run at the same time must ask for so many rows: the size of batches is
        one setting of the file. Errors as for :meth:`iter_batches`.
        """
        return min((self._rows_at_once(group, most, columns) for group in row_groups), default=most)

    def iter_held_batches(
        self, columns: Sequence[str], row_groups: Iterable[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches that are all kept. Raises ``ValueError`` if they take too much memory together."""
        most, held = max(ROW_BYTES, UNFOLDED * self._input.size()), 0
        for batch in self.iter_batches(_HELD_ROWS, row_groups, columns, use_threads=False):
            held += batch.nbytes
            if held > most:
                raise ValueError(f"its columns would take more than {most:,} bytes")
            yield batch

    def row_groups_with(self, columns: Collection[str]) -> list[int]:
        """The row groups in which one of the columns may have a value that is not null, by the counts in the footer.

        Args:
            columns: paths to leaf columns. If the file lacks one of them, all row groups are returned.

        Raises:
            ValueError: the footer contradicts itself.
        """
        footer, odd = self.footer, self.without_bounds
        leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path in columns]

        def may_have(number: int) -> bool:
            group = footer.row_group(number)
            return any(leaf in odd or not _all_null(group.column(leaf), group.num_rows) for leaf in leaves)

        return [number for number in range(footer.num_row_groups) if len(leaves) < len(columns) or may_have(number)]

    def _runs(self, most: int, groups: Iterable[int], columns: Sequence[str] | None) -> Iterator[tuple[int, list[int]]]:
        """Runs of row groups with the same number of rows in a batch, and that number."""
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
        wanted = None if columns is None else tuple(columns)
        leaves = self._leaves.get(wanted)
        if leaves is None:
            leaves = self._leaves[wanted] = wanted_leaves(self.metadata, wanted)
        if not leaves and self.metadata.num_columns and group.num_rows > _MANY_ROWS:
            self._check_rows(number, group)
        costs = [cost for leaf in leaves if (cost := self._known_cost(number, group, leaf, most)) is not None]
        rows = most
        while (bytes_ := sum(cost.of(rows) for cost in costs)) > BATCH_BYTES and rows > 1:
            rows //= 2
        if rows == 1 and bytes_ > ROW_BYTES:
            raise ValueError(f"a row of row group {number} may take {bytes_:,} bytes")
        return rows

    def _check_rows(self, number: int, group: Any) -> None:
        """Check the number of rows if no column of the row group is read: rows without columns cost time, too."""
        chunk, column = group.column(0), self.metadata.schema.column(0)
        pages = self._pages(number, column.path, chunk, 0)
        if column.max_repetition_level == 0 and group.num_rows > sum(p.values for p in pages if not p.is_dictionary):
            raise ValueError(f"row group {number} says that it has {group.num_rows:,} rows, and has fewer")

    def _pages(self, number: int, path: str, chunk: Any, width: int) -> list[PageHeader]:
        """The pages of a column of a row group; of a fixed width, where only a dictionary can grow, the first page."""
        if chunk.num_values == 0:
            return []  # a file without rows has no pages, and pyarrow reads none
        pages = read_page_headers(self._bytes_at, chunk_start(chunk), 0 if width else chunk.num_values)
        for page in pages:
            # Each entry takes the bytes of a value, or at least the four bytes of its length.
            if page.is_dictionary and (page.size > DICTIONARY_BYTES or page.values * (width or 4) > page.size):
                raise ValueError(
                    f"column {path} of row group {number} has a dictionary of {page.values:,} values, "
                    f"of {page.size:,} bytes"
                )
        return pages

    def _known_cost(self, number: int, group: Any, leaf: int, most: int) -> _Cost | None:
        key = number, leaf, most
        if key not in self._costs:
            self._costs[key] = self._cost(number, group, leaf, most)
        return self._costs[key]

    def _cost(self, number: int, group: Any, leaf: int, most: int) -> _Cost | None:
        column, chunk = self.metadata.schema.column(leaf), group.column(leaf)
        repeated = column.max_repetition_level > 0
        fixed = chunk.physical_type == "FIXED_LEN_BYTE_ARRAY"
        width = column.length if fixed else PHYSICAL_WIDTHS.get(chunk.physical_type, 0)
        if width > _WIDEST:
            raise ValueError(f"column {column.path} has values of {width:,} bytes each")
        if width and not repeated:
            self._pages(number, column.path, chunk, width)
            return _Cost([], [], width) if width > BATCH_BYTES // most else None
        pages = self._pages(number, column.path, chunk, 0)
        data = [page for page in pages if not page.is_dictionary]
        longest = 0 if width or column.path in self._places else self._longest(number, leaf, pages, most)
        if not repeated:
            # The bytes of a row that are not in its page: an entry of the dictionary, or a prefix of another value.
            prefix = max((page.size for page in data if page.by_prefix), default=0)
            return _Cost([page.values for page in data], [page.size for page in data], max(longest, prefix))
        whole = sum(page.unfolded(width or longest) + _LEVELS * page.values for page in data)
        if whole > max(ROW_BYTES, UNFOLDED * chunk.total_compressed_size):
            raise ValueError(f"column {column.path} of row group {number} would take {whole:,} bytes")
        return _Cost([], [], whole / max(group.num_rows, 1))

    def _longest(self, number: int, leaf: int, pages: list[PageHeader], most: int) -> int:
        """An upper bound of the bytes of a dictionary's longest entry; 0 if there is none."""
        found = max((page.size - 4 * page.values for page in pages if page.is_dictionary), default=0)
        repeats = sum(page.values for page in pages if page.by_dictionary)
        if found * min(repeats, most) <= BATCH_BYTES // 4:
            return found
        # Most dictionaries are long because they have many entries, so the entries themselves have to be read.
        codec = _CODECS.get(self.metadata.row_group(number).column(leaf).compression)
        entries = [self._entries(page, codec) for page in pages if page.is_dictionary]
        return max((_longest_entry(one) for one in entries if one is not None), default=0) if all(entries) else found

    def _entries(self, page: PageHeader, codec: int | None) -> pq.ParquetFile | None:
        """A file with the entries of a dictionary; None if its codec is unknown, or its body is cut off."""
        body = bytes(self._bytes_at(*page.place))
        if codec is None or len(body) < page.place[1]:
            return None
        return pq.ParquetFile(pa.BufferReader(dictionary_file(page, body, codec)), pre_buffer=False)


@dataclass(frozen=True)
class _Cost:
    """An upper bound of the memory that some rows of a column take.

    Attributes:
        values: the number of values of each page, one a row.
        sizes: the bytes of each decoded page.
        a_row: the bytes that each row takes in addition to its pages; for columns without pages here, all of its bytes.
    """

    values: list[int]
    sizes: list[int]
    a_row: float

    def of(self, rows: int) -> int:
        """The most bytes that so many consecutive rows take, for any first row."""
        most = held = between = first = 0
        for last, size in enumerate(self.sizes):
            held += size
            between += self.values[last - 1] if last - 1 > first else 0
            # The rows touch two pages if they include all rows between them, and one row of each.
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
    """Whether the dictionary of a string column is small; None if there is none, or if some strings are plain."""
    chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
    if any(chunk.dictionary_page_offset is None for chunk in chunks):
        return None
    sizes = [chunk.total_uncompressed_size for chunk in chunks]
    # A plain text takes at least the four bytes of its length.
    if sum(sizes) < _INDEX * sum(chunk.num_values for chunk in chunks):
        return True
    return False if max(sizes, default=0) < _FULL else None


def unfolding(batch: pa.RecordBatch) -> int:
    """The number of rows of a batch that stay within :data:`BATCH_BYTES` when its string dictionaries are decoded."""
    rows: int = batch.num_rows
    dictionaries = [column.dictionary for column in batch.columns if _is_encoded_text(column.type)]
    if sum(dictionary.nbytes for dictionary in dictionaries) * rows <= BATCH_BYTES:
        return rows  # the usual case
    width = sum(pc.max(pc.binary_length(dictionary)).as_py() or 0 for dictionary in dictionaries)
    return rows if width * rows <= BATCH_BYTES else max(1, int(BATCH_BYTES // width))


def _is_encoded_text(kind: pa.DataType) -> bool:
    """Whether a column is a dictionary of strings. The Arrow schema of a file may ask for other dictionaries, too."""
    return bool(pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _longest_entry(entries: pq.ParquetFile) -> int:
    batches = entries.iter_batches(use_threads=False)
    return max((pc.max(pc.binary_length(batch.column(0))).as_py() for batch in batches), default=0)


def wanted_leaves(footer: Any, columns: Sequence[str] | None) -> Sequence[int]:
    """The numbers of the leaf columns of some columns, each given by the path to the leaf or to one of its parents."""
    if columns is None:
        return range(footer.num_columns)
    wanted = set(columns)
    schema = footer.schema
    return [leaf for leaf in range(footer.num_columns) if _is_under(schema.column(leaf).path, wanted)]


def chunk_start(chunk: Any) -> int:
    """The position of a column's first page in a row group: that of its dictionary if there is one."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    # Some writers put 0 for no dictionary.
    return int(dictionary if dictionary is not None and 0 < dictionary < start else start)


def _is_under(path: str, wanted: set[str]) -> bool:
    # A dot may be part of a name: then some bytes too many are fetched, and pyarrow reads the right column.
    end = len(path)
    while end > 0:
        if path[:end] in wanted:
            return True
        end = path.rfind(".", 0, end)
    return False
