"""A table as a pyarrow ``Dataset``: its live files as fragments, which are opened when they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from refdelta.arrow.scanner import reader_of
from refdelta.arrow.schema import large_schema
from refdelta.engine.parquet.files import missing_file
from refdelta.engine.scan.foreign import PYARROW, ForeignFiles
from refdelta.engine.scan.guarantees import guarantees
from refdelta.engine.scan.origin import mark, marks_of, note, noted
from refdelta.engine.scan.scan import missing_files, plan_scan, scan_files
from refdelta.errors import InvalidArgumentError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.foreign import Footers
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage.base import Store


def dataset_of(
    snapshot: Snapshot,
    *,
    partitions: Any = None,
    filesystem: Any = None,
    parquet_read_options: Any = None,
    schema: pa.Schema | None = None,
    as_large_types: bool = False,
    file_pruning_predicate: Any = None,
) -> ds.Dataset:
    """A dataset over a version. Arguments and errors as for ``DeltaTable.to_pyarrow_dataset``."""
    if partitions is not None and file_pruning_predicate is not None:
        raise InvalidArgumentError("give partitions or file_pruning_predicate, not both")
    scan = plan_scan(snapshot, None, file_pruning_predicate if partitions is None else partitions)
    if partitions is not None and scan.plan.row_filter is not None:
        raise InvalidArgumentError("partitions must be a condition on partition columns alone")
    foreign = ForeignFiles(scan.store, replace(scan.plan, row_filter=None, filter_columns=()), scan_files(scan))
    problem = foreign.problem_in_log(PYARROW)
    if problem is not None:
        raise _refused(problem)
    return dataset_over(scan, foreign, filesystem, parquet_read_options, schema, as_large_types=as_large_types)


def _refused(problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"a pyarrow dataset cannot read this table: {problem}; use to_polars(), to_duckdb() or scan()"
    )


def dataset_over(
    scan: Scan,
    foreign: ForeignFiles,
    filesystem: Any = None,
    parquet_read_options: Any = None,
    schema: pa.Schema | None = None,
    *,
    as_large_types: bool = False,
) -> ds.Dataset:
    """A dataset over files in which the log shows no problem for pyarrow. The other arguments are those of
    ``to_pyarrow_dataset``.

    No file is opened. The footer of a file is looked at when pyarrow opens the file.
    """
    read_format = ds.ParquetFileFormat(
        read_options=parquet_read_options,
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
    )
    sizes = {file.key: file.size for file in foreign.files}
    files = _TableFiles(scan.store, scan.snapshot.version, foreign.footers, _file_system(filesystem), sizes)
    place = pa_fs.PyFileSystem(files)
    shown = _schema(scan.schema, schema, as_large_types, read_format)
    fragments = [
        read_format.make_fragment(file.key, place, partition_expression=condition)
        for file, condition in zip(foreign.files, guarantees(scan, foreign.files, shown), strict=True)
    ]
    return mark(TableDataset(fragments, shown, read_format, place), [scan.snapshot])


def _schema(own: pa.Schema, given: pa.Schema | None, large: bool, read_format: ds.ParquetFileFormat) -> pa.Schema:
    chosen = given if given is not None else large_schema(own) if large else own
    as_dictionary = read_format.read_options.dictionary_columns or ()
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in as_dictionary else field
            for field in chosen
        ],
        chosen.metadata,
    )


def _file_system(given: Any) -> pa_fs.FileSystem | None:
    if given is None:
        return None
    if isinstance(given, str):
        root, path = pa_fs.FileSystem.from_uri(given)
        return pa_fs.SubTreeFileSystem(path, root)
    return given if isinstance(given, pa_fs.FileSystem) else pa_fs.PyFileSystem(pa_fs.FSSpecHandler(given))


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A dataset over the files of a table. What is made of it is marked with the table's version, too.

    DuckDB, and others, read a dataset by ``scanner(...).to_reader()``, which is made without a deadlock:
    Python code reads the files; :mod:`refdelta.arrow.scanner` has the reason.
    """

    def _scanner_options(self, options: dict[str, Any]) -> Any:
        """Note the version: pyarrow calls this for each scanner, also where DuckDB makes one."""
        for snapshot in marks_of(self):
            note(snapshot)
        return super()._scanner_options(options)

    def scanner(self, *arguments: Any, **options: Any) -> Any:
        """A scan of the dataset, with the arguments of :meth:`pyarrow.dataset.Dataset.scanner`.

        Returns:
            A :class:`TableScanner`. For ``use_threads`` alone, a scanner of pyarrow: ``write_dataset`` asks for
            it so, takes nothing else, and does not make a reader.
        """
        found = mark(super().scanner(*arguments, **options), marks_of(self))
        return found if not arguments and options.keys() == {"use_threads"} else TableScanner(found)

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """The rows in batches, with the arguments of :meth:`pyarrow.dataset.Dataset.to_batches`."""
        return noted(super().to_batches(*arguments, **options), marks_of(self))

    def get_fragments(self, *arguments: Any, **options: Any) -> Iterator[ds.Fragment]:
        """The files, with the arguments of :meth:`pyarrow.dataset.Dataset.get_fragments`."""
        found, read = super().get_fragments(*arguments, **options), marks_of(self)
        return (mark(fragment, read) for fragment in found)

    def filter(self, expression: ds.Expression) -> Any:
        """The dataset with a filter, as :meth:`pyarrow.dataset.Dataset.filter` makes it."""
        return mark(super().filter(expression), marks_of(self))

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        """A copy with another schema. Errors as for :meth:`pyarrow.dataset.Dataset.replace_schema`."""
        replaced = super().replace_schema(schema)
        # pyarrow has no other access to the filter of a dataset, with which it shows no fragments.
        options, replaced._scan_options = replaced._scan_options, {}  # noqa: SLF001
        made = TableDataset(*replaced.__reduce__()[1])
        made._scan_options = options
        return mark(made, marks_of(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return TableDataset, super().__reduce__()[1]


class TableScanner:
    """A scanner of pyarrow, with its methods and properties. It is an Arrow stream, too.

    Args:
        scanner: the scanner of pyarrow, marked with the version that it reads.
    """

    def __init__(self, scanner: ds.Scanner) -> None:
        self._scanner = scanner
        mark(self, marks_of(scanner))

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_scanner"), name)  # an error, and no endless call, in a copy

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""
        return noted(self._scanner.to_batches(), marks_of(self))

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader."""
        return mark(reader_of(self._scanner), marks_of(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


class _TableFiles(pa_fs.FileSystemHandler):  # type: ignore[misc]
    """The data files of a table, by their keys, as files that can be read if pyarrow reads them right.

    Args:
        store: the table's folder.
        version: the version that is read, for errors.
        footers: what is known of the files' footers.
        place: a file system whose root is the table's folder; None for the store.
        sizes: the sizes of files in bytes by the log, which save requests.
    """

    def __init__(
        self,
        store: Store,
        version: int,
        footers: Footers,
        place: pa_fs.FileSystem | None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self._store, self._version, self._footers, self._place = store, version, footers, place
        self._sizes = sizes or {}
        self._fit: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the sizes: each fragment that is sent to another process has this with it.
        return _TableFiles, (self._store, self._version, self._footers, self._place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TableFiles) and self._store is other._store and self._place == other._place

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "refdelta"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[pa_fs.FileInfo]:
        return [self._info(path) for path in paths] if self._place is None else self._place.get_file_info(paths)

    def _info(self, path: str) -> pa_fs.FileInfo:
        try:
            found = self._store.head(path)
        except ObjectNotFoundError:
            return pa_fs.FileInfo(path, pa_fs.FileType.NotFound)
        return pa_fs.FileInfo(path, pa_fs.FileType.File, size=found.size)

    def get_file_info_selector(self, selector: pa_fs.FileSelector) -> list[pa_fs.FileInfo]:
        raise NotImplementedError("the files of a table are those of its log")

    def open_input_file(self, path: str) -> pa.NativeFile:
        with missing_files(self._store, self._version):
            if path not in self._fit:
                problem = self._footers.problem(path, self._sizes.get(path))
                if problem is not None:
                    raise _refused(problem)
                self._fit.add(path)
            try:
                return self._opened(path)
            except (FileNotFoundError, ObjectNotFoundError) as error:
                raise missing_file(path) from error

    def _opened(self, path: str) -> pa.NativeFile:
        if self._place is not None:
            return self._place.open_input_file(path)
        local = self._store.local_path(path)
        # Arrow reads a file of the system without the interpreter's lock.
        return pa.PythonFile(self._store.open_input(path), mode="r") if local is None else pa.OSFile(local, mode="r")

    open_input_stream = open_input_file

    def _refuse(self, *_: object) -> None:
        raise NotImplementedError("a table is written by its own methods")

    open_output_stream = open_append_stream = create_dir = _refuse
    delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
