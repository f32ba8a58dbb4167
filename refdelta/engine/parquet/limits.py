"""Limits of the memory that reading a Parquet file takes, derived from its page headers before anything is decoded.

Few stored bytes can stand for many values. So the page headers of a row group are read first (Parquet's specification,
"Data Pages"), of all columns that can grow: they are of variable width, or repeated, or of a codec that could make much
of them. If 64K rows may take more than :data:`BATCH_BYTES`, a batch has fewer rows. A row group that no
number of rows would bound is refused. All bounds are for the columns of a batch together.
"""

from __future__ import annotations

import sys
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
from refdelta.engine.work.executor import sharing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from refdelta.engine.parquet.budget import FileBudget

BATCH_BYTES = 2**30
"""The limit of the columns of a batch together, in bytes, as long as fewer rows can keep it."""

DICTIONARY_BYTES = 2**30
"""The limit of a column's dictionary in a row group, in bytes. It is held while the row group is read."""

ROW_BYTES = 2**32
"""The limit of a batch with its pages and dictionaries, in bytes, which no number of rows bounds."""

UNFOLDED = 1000
"""The limit of the repeated columns of a row group together, a single row of which may have all of them: so many times
the stored bytes, if that is more than :data:`ROW_BYTES`.
"""

FEW_ROWS = 8 * 1024
"""Files with fewer rows are read by one thread, and all columns at once: nothing else is worth its overhead."""

_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
# The most bytes that one stored byte becomes, by codec; of others, about the second number.
_GROWTH = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 256, "LZ4_RAW": 256}
_MOST_GROWTH = 2**16
_HELD_ROWS = 32 * 1024  # of batches that are kept: while a batch grows, it takes up to twice its memory
_HELD_BATCH = 2**27  # bytes of such a batch, likewise
_MANY_ROWS = 2**24
_WIDEST = 2**20  # bytes of a value of fixed width, which only decimals have in Delta
_INDEX = 3  # a value takes fewer bytes if it is an index into a small dictionary
_FULL = 2**20  # bytes of a dictionary at which writers give it up, and write plain strings
_LEVELS = 4  # bytes of a value of a repeated column for its levels
_LOOSE = 2**26  # bytes of columns together up to which nothing is looked at to find out how many there are exactly
_ENTRY = 16  # bytes that a dictionary has for each entry, besides its text


class BoundedParquetFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A ``ParquetFile`` whose batches have the requested number of rows, or fewer if these take too much memory.

    Args:
        source: the input of pyarrow; it is closed with the file.
        bytes_at: returns bytes of the file.
        options: for ``ParquetFile``.

    Attributes:
        size: the length of the file in bytes.
        far: whether each read is a request over a network.
        use_threads: whether columns are decoded in parallel, unless an argument says so.
    """

    far = False
    use_threads = True

    def __init__(self, source: Any, bytes_at: BytesAt, **options: Any):
        super().__init__(source, pre_buffer=False, **options)
        self._input, self._bytes_at, self._options = source, bytes_at, options
        self.size: int = source.size()
        self._batch_bytes = BATCH_BYTES
        self._places: frozenset[str] = frozenset()
        self._leaves: dict[Sequence[str] | None, Sequence[int]] = {}
        self._costs: dict[tuple[int, int, int, int], _Cost] = {}

    @cached_property
    def examined(self) -> tuple[frozenset[int], FooterForm | None]:
        """The result of the check of the footer, which another reader of the file may take over. Errors as for
        :attr:`footer`.
        """
        return examine_footer(self.metadata, self._bytes_at, self.size)

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
        footer, found, wanted = self.footer, dict[str, bool](), frozenset(columns)
        for leaf in wanted_leaves(footer, columns):
            path = footer.schema.column(leaf).path
            small = _dictionary(footer, leaf) if path in wanted else None
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
        for rows, run, bytes_ in self._runs(batch_size, groups, columns):
            with sharing(bytes_):
                yield from super().iter_batches(rows, row_groups=run, columns=columns, **options)

    def batch_rows(self, most: int, row_groups: Iterable[int], columns: Sequence[str]) -> int:
        """The number of rows, at most ``most``, that a batch of any of these row groups may have.

        Iterators over parts of the columns that run at the same time must ask for so many rows: the size of batches is
        one setting of the file. Errors as for :meth:`iter_batches`.
        """
        return min((self._at_once(group, most, columns)[0] for group in row_groups), default=most)

    def iter_held_batches(
        self, columns: Sequence[str], row_groups: Iterable[int] | None, budget: FileBudget
    ) -> Iterator[pa.RecordBatch]:
        """Batches that are all kept. Raises ``ValueError`` if they take more than the budget has."""
        self._batch_bytes = min(_HELD_BATCH, BATCH_BYTES)
        for batch in self.iter_batches(_HELD_ROWS, row_groups, columns, use_threads=False):
            budget.take(batch.nbytes)
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

    def _runs(
        self, most: int, groups: Iterable[int], columns: Sequence[str] | None
    ) -> Iterator[tuple[int, list[int], int]]:
        """Runs of row groups with the same number of rows in a batch, that number, and the bytes that a batch takes."""
        rows, run, whole, largest = most, list[int](), 0, 0
        for group in groups:
            bound, all_, batch = self._at_once(group, most, columns)
            if run and bound != rows:
                yield rows, run, min(whole, largest)
                run, whole, largest = [], 0, 0
            rows, whole, largest = bound, whole + all_, max(largest, batch)
            run.append(group)
        if run:
            yield rows, run, min(whole, largest)

    def _at_once(self, number: int, most: int, columns: Sequence[str] | None) -> tuple[int, int, int]:
        """The rows of a batch of a row group, and the bytes that the row group and a batch take at most."""
        group = self.footer.row_group(number)
        wanted = None if columns is None else tuple(columns)
        leaves = self._leaves.get(wanted)
        if leaves is None:
            leaves = self._leaves[wanted] = wanted_leaves(self.metadata, wanted)
        if not leaves and self.metadata.num_columns and group.num_rows > _MANY_ROWS:
            self._check_rows(number, group)
        loose = min(_LOOSE, BATCH_BYTES // 16) // max(len(leaves), 1)
        costs = [self._known_cost(number, group, leaf, most, loose) for leaf in leaves]
        self._check_whole(number, costs)
        held, rows = sum(cost.held for cost in costs), most
        while (bytes_ := sum(cost.of(rows) for cost in costs)) > self._batch_bytes and rows > 1:
            rows //= 2
        if bytes_ + held > ROW_BYTES:
            raise ValueError(f"a row of row group {number}, with its pages, may take {bytes_ + held:,} bytes")
        return rows, held + sum(cost.of(min(rows, cost.rows)) for cost in costs), held + bytes_

    def _check_whole(self, number: int, costs: list[_Cost]) -> None:
        """Check the columns of which a single row may have all values."""
        stored = min(sum(cost.stored for cost in costs if cost.whole), self.size)
        whole = sum(cost.whole for cost in costs)
        if whole > max(ROW_BYTES, UNFOLDED * stored):
            names = [cost.path for cost in costs if cost.whole]
            these = f"column {names[0]:.200}" if len(names) == 1 else f"{len(names)} columns"
            raise ValueError(f"{these} of row group {number} would take {whole:,} bytes")

    def _check_rows(self, number: int, group: Any) -> None:
        """Check the number of rows if no column of the row group is read: rows without columns cost time, too."""
        chunk, column = group.column(0), self.metadata.schema.column(0)
        pages = self._pages(number, column.path, chunk, 0)
        if column.max_repetition_level == 0 and group.num_rows > sum(p.values for p in pages if not p.is_dictionary):
            raise ValueError(f"row group {number} says that it has {group.num_rows:,} rows, and has fewer")

    def _pages(self, number: int, path: str, chunk: Any, width: int) -> list[PageHeader]:
        """The pages of a column of a row group, whose dictionary is checked."""
        if chunk.num_values == 0:
            return []  # a file without rows has no pages, and pyarrow reads none
        pages = read_page_headers(self._bytes_at, chunk_start(chunk), chunk.num_values)
        for page in pages:
            # Each entry takes the bytes of a value, or at least the four bytes of its length.
            if page.is_dictionary and (page.held > DICTIONARY_BYTES or page.values * (width or 4) > page.held):
                raise ValueError(
                    f"column {path} of row group {number} has a dictionary of {page.values:,} values, "
                    f"of {page.held:,} bytes"
                )
        return pages

    def _known_cost(self, number: int, group: Any, leaf: int, most: int, loose: int) -> _Cost:
        key = number, leaf, most, loose
        if key not in self._costs:
            self._costs[key] = self._cost(number, group, leaf, most, loose)
        return self._costs[key]

    def _cost(self, number: int, group: Any, leaf: int, most: int, loose: int) -> _Cost:
        """The memory of a column of a row group; if it is at most ``loose`` bytes, it need not be exact."""
        column, chunk = self.metadata.schema.column(leaf), group.column(leaf)
        repeated = column.max_repetition_level > 0
        kind, stored = chunk.physical_type, chunk.total_compressed_size
        width = column.length if kind == "FIXED_LEN_BYTE_ARRAY" else PHYSICAL_WIDTHS.get(kind, 0)
        if width > _WIDEST:
            raise ValueError(f"column {column.path} has values of {width:,} bytes each")
        if not 0 <= stored <= self.size:
            raise ValueError(f"column {column.path} of row group {number} says that it has {stored:,} bytes")
        if width and not repeated:
            growth = _GROWTH.get(chunk.compression)
            if growth is not None:
                # The footer is believed where it can lie little.
                held = min(growth * stored, max(0, chunk.total_uncompressed_size))
                return _Cost([], [], width, held, whole=growth * stored, stored=stored, path=column.path)
            if _MOST_GROWTH * stored < loose:
                return _Cost([], [], width, _MOST_GROWTH * stored)
            pages = self._pages(number, column.path, chunk, width)
            held = max((page.held for page in pages if not page.is_dictionary), default=0)
            return _Cost([], [], width, _dictionary_bytes(pages, width) + held)
        pages = self._pages(number, column.path, chunk, width)
        data = [page for page in pages if not page.is_dictionary]
        longest = 0 if width or column.path in self._places else self._longest(number, leaf, pages, most)
        held = _dictionary_bytes(pages, width)
        if not repeated:
            # The bytes of a row that are not in its page: an entry of the dictionary, or a prefix of another value.
            prefix = max((page.held for page in data if page.by_prefix), default=0)
            values = [page.values for page in data]
            return _Cost(values, [page.held for page in data], max(longest, prefix), held, sum(values))
        whole = sum(page.unfolded(width, longest) + _LEVELS * page.values for page in data)
        return _Cost([], [], whole / max(group.num_rows, 1), held, group.num_rows, whole, stored, column.path)

    def _longest(self, number: int, leaf: int, pages: list[PageHeader], most: int) -> int:
        """An upper bound of the bytes of a dictionary's longest entry; 0 if there is none."""
        found = max((page.held - 4 * page.values for page in pages if page.is_dictionary), default=0)
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
        held: the bytes that are held while rows are read, however few: a dictionary, a page of numbers.
        rows: the most rows that there are.
        whole: the bytes of all rows, any of which may have all of them; 0 if the column is not repeated.
        stored: the stored bytes of the column.
        path: of the column.
    """

    values: list[int]
    sizes: list[int]
    a_row: float
    held: int
    rows: int = sys.maxsize
    whole: int = 0
    stored: int = 0
    path: str = ""

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


def _dictionary_bytes(pages: list[PageHeader], width: int) -> int:
    """The memory of a dictionary: its page, and its decoded entries."""
    return sum(2 * page.held + (0 if width else _ENTRY * page.values) for page in pages if page.is_dictionary)


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


def unfolding(batch: pa.RecordBatch) -> tuple[int, int]:
    """The rows of a batch that stay within :data:`BATCH_BYTES` when its string dictionaries are decoded.

    Returns:
        Their number, and the bytes that their strings then take at most; 0 if they are few.
    """
    rows: int = batch.num_rows
    dictionaries = [column.dictionary for column in batch.columns if _is_encoded_text(column.type)]
    if sum(dictionary.nbytes for dictionary in dictionaries) * rows <= min(_LOOSE, BATCH_BYTES):
        return rows, 0
    width = sum(pc.max(pc.binary_length(dictionary)).as_py() or 0 for dictionary in dictionaries)
    rows = rows if width * rows <= BATCH_BYTES else max(1, int(BATCH_BYTES // width))
    return rows, width * rows


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
