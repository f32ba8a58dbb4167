"""The timeline of a table, from its log: what each version read, and over which versions it was committed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from refdelta.core.log.codec import BAD_INPUT
from refdelta.core.log.footprint import MEMBERS, lines_of_member
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.core.log.statistics import parse_stats
from refdelta.core.log.timestamps import rising
from refdelta.engine.log.listing import list_log
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.scan.scan import RowStream
from refdelta.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from refdelta.operations.inspection.drawing import draw, to_svg
from refdelta.transaction.parties import info_of_member, predicate_of, tables_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from refdelta_storage import Store

SCHEMA = pa.schema([
    ("version", pa.int64()),
    ("member", pa.int64()),
    ("timestamp", pa.timestamp("ms", "UTC")),
    ("operation", pa.string()),
    ("predicate", pa.string()),
    ("read_version", pa.int64()),
    ("passed", pa.list_(pa.int64())),
    ("isolation_level", pa.string()),
    ("blind_append", pa.bool_()),
    ("user", pa.string()),
    ("engine", pa.string()),
    ("note", pa.string()),
    ("tables", pa.list_(pa.string())),
    ("rows", pa.int64()),
    ("files_added", pa.int64()),
    ("files_removed", pa.int64()),
    ("bytes_added", pa.int64()),
    ("bytes_removed", pa.int64()),
    ("damage", pa.string()),
])  # fmt: skip
"""The columns of a timeline."""

_AT_ONCE = 100
"""The number of commits that are read at once."""

_DRAWN = 20
"""The number of versions in a drawing unless a range is asked for."""

_MOST_DRAWN = 1_000
"""The most versions in a drawing."""

_PASSED = 1_000
"""The most versions in the list of versions that a commit passed, the newest ones."""

_ROWS = {"numOutputRows", "num_added_rows", "num_output_rows"}, {
    "numDeletedRows", "num_deleted_rows", "numUpdatedRows", "num_updated_rows",
    "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted",
    "num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted",
}  # fmt: skip
"""Metrics of operations: rows that a write added, and rows that a statement changed, which count if there are any."""


class _FileLine(msgspec.Struct):
    path: Any = None
    size: Any = None
    stats: Any = None


class _ActionLine(msgspec.Struct, rename="camel"):
    commit_info: dict[str, Any] | None = None
    add: _FileLine | None = None
    remove: _FileLine | None = None


_decoder = msgspec.json.Decoder(_ActionLine)


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(RowStream):
    """The versions of a log, oldest first: an Arrow stream that reads the log while it is consumed.

    A version with members has a row for each of them, any other version one row. The columns are ``version``,
    ``member`` (its place among the members, counted from 0; null without members), ``timestamp``, ``operation``,
    ``predicate`` (SQL that is true for each row that it read), ``read_version``, ``passed`` (the versions between the
    one that it read and its own, over which it was committed; the newest 1,000), ``isolation_level``, ``blind_append``,
    ``user``, ``engine``, ``note``, ``tables`` (of a transaction over several tables, as ``sales.orders@7``), ``rows``
    (added or changed), ``files_added``, ``files_removed``, ``bytes_added``, ``bytes_removed`` (without files that only
    get another deletion vector) and ``damage``. A field that a commit does not record is null. ``str()`` draws the
    newest 20 versions, or those that were asked for.
    """

    _store: Store
    _commits: Sequence[tuple[int, int]]
    """Version and file time, in milliseconds since 1970, of each commit, ascending."""
    _asked: bool = False
    """Whether a range was asked for."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return SCHEMA

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The versions in batches.

        Raises:
            StoreError: the store failed.
        """
        before = None
        for start in range(0, len(self._commits), _AT_ONCE):
            some = self._commits[start : start + _AT_ONCE]
            with store_errors("read the log"):
                contents = self._store.get_many([commit_key(version) for version, _ in some])
            rows = []
            for (version, mtime_ms), data in zip(some, contents, strict=True):
                rows.extend(_entries(version, mtime_ms, data, before))
                before = version
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    @cached_property
    def _drawn(self) -> list[dict[str, Any]]:
        """The versions of a drawing.

        Raises:
            InvalidArgumentError: more than 1,000 versions were asked for.
        """
        if self._asked and len(self._commits) > _MOST_DRAWN:
            raise InvalidArgumentError(
                f"a drawing of {len(self._commits):,} versions has too many lines: ask for at most {_MOST_DRAWN:,}, by "
                "limit or by version=(first, last)"
            )
        some = self._commits if self._asked else self._commits[-_DRAWN:]
        # With times as numbers: some logs have times that no calendar has.
        table = Timeline(self._store, some).to_table()
        at = SCHEMA.get_field_index("timestamp")
        rows: list[dict[str, Any]] = table.set_column(at, "timestamp", table.column(at).cast(pa.int64())).to_pylist()
        return rows

    @property
    def left_out(self) -> int:
        """The number of versions that are not drawn."""
        return 0 if self._asked else max(0, len(self._commits) - _DRAWN)

    def draw(self, width: int | None = None, *, colour: bool = False) -> str:
        """Draw the versions and members, one a line, with a lane for each commit that was moved over others.

        Args:
            width: the number of columns; None for those of the terminal.
            colour: whether to use the colours of a terminal.

        Raises:
            InvalidArgumentError: more than 1,000 versions were asked for.
        """
        columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
        lines = draw(self._drawn, max(columns, 40), colour=colour)
        if self.left_out:
            lines.append(f"... and {self.left_out:,} older versions; ask for a range to see them")
        return "\n".join(lines)

    def to_svg(self) -> str:
        """The drawing as an SVG document, for light and dark pages. Errors as for :meth:`draw`."""
        return to_svg(self._drawn, self._store.uri)

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        return f"<Timeline of {self._store.uri}: {len(self._commits):,} versions>"

    def _repr_html_(self) -> str:
        return self.to_svg()


def timeline(store: Store, limit: int | None, first: int | None, last: int | None) -> Timeline:
    """The timeline of the log in a store. Only the names of its files are read at once.

    Args:
        store: the table's folder.
        limit: the maximum number of versions, the newest ones; None for all.
        first: the first version; None for the oldest one in the log.
        last: the last version; None for the newest one.

    Raises:
        TableNotFoundError: there is no log.
        VersionNotFoundError: the log has no commit in the range.
    """
    names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in list_log(store))
    commits = rising((name.version, mtime_ms) for name, mtime_ms in names if name and name.kind == "commit")
    if not commits:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its log has no commit")
    some = [
        commit for commit in commits if (first is None or commit[0] >= first) and (last is None or commit[0] <= last)
    ]
    if not some:
        oldest, newest = commits[0][0], commits[-1][0]
        raise VersionNotFoundError(f"the log has no version from {first} to {last}; it has {oldest} to {newest}")
    asked = limit is not None or first is not None or last is not None
    return Timeline(store, some if limit is None else some[-limit:], asked)


# --- one commit ------------------------------------------------------------------------------------------------------


def _entries(version: int, mtime_ms: int, data: bytes, before: int | None) -> list[dict[str, Any]]:
    """The rows of a version: one for each of its members, or one."""
    info: dict[str, Any] = {}
    actions, damage, unreadable = list[_ActionLine](), list[str](), False
    if before is not None and version > before + 1:
        several = f"versions {before + 1} to {version - 1} are" if version > before + 2 else f"version {before + 1} is"
        damage.append(f"{several} missing")
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            action = _decoder.decode(line)
        except BAD_INPUT as error:
            damage.append(f"line {number} is not an action: {error}")
            unreadable = True
            continue
        actions.append(action)
        if action.commit_info is not None:
            info = action.commit_info
    said = "; ".join(damage) or None
    entries = info.get(MEMBERS)
    lines = [lines_of_member(one, len(actions)) for one in entries] if isinstance(entries, list) else []
    if not lines or None in lines or unreadable:
        return [_entry(version, None, mtime_ms, info, actions) | {"damage": said}]
    return [
        _entry(version, number, mtime_ms, info_of_member(info, number), [actions[line] for line in some or ()])
        | {"damage": None if number else said}
        for number, some in enumerate(lines)
    ]


def _entry(
    version: int, member: int | None, mtime_ms: int, info: Mapping[str, Any], actions: Sequence[_ActionLine]
) -> dict[str, Any]:
    added = [action.add for action in actions if action.add is not None]
    removed = [action.remove for action in actions if action.remove is not None]
    # A file that is removed and added again has another deletion vector, and the same bytes.
    new, old = ({file.path for file in files if isinstance(file.path, str)} for files in (added, removed))
    added = [file for file in added if file.path not in old]
    removed = [file for file in removed if file.path not in new]
    read, blind = _whole(info.get("readVersion")), info.get("isBlindAppend")
    read = read if read is not None and -1 <= read < version else None
    stamp = _whole(info.get("inCommitTimestamp"))
    return {
        "version": version,
        "member": member,
        "timestamp": mtime_ms if stamp is None else stamp,
        "operation": text_of(info.get("operation")),
        "predicate": predicate_of(info),
        "read_version": read,
        "passed": None if read is None else list(range(max(read + 1, version - _PASSED), version)),
        "isolation_level": text_of(info.get("isolationLevel")),
        "blind_append": blind if isinstance(blind, bool) else None,
        "user": text_of(info.get("userName")) or text_of(info.get("userId")),
        "engine": text_of(info.get("engineInfo")),
        "note": text_of(info.get("userMetadata")),
        "tables": list(tables_of(info)) or None,
        "rows": _rows(info.get("operationMetrics"), added, removes=bool(old)),
        "files_added": len(added),
        "files_removed": len(removed),
        "bytes_added": _total(added),
        "bytes_removed": _total(removed),
        "damage": None,
    }


def _whole(value: Any) -> int | None:
    """A whole number that a column can hold."""
    return value if type(value) is int and abs(value) < 2**62 else None


def _total(files: Sequence[_FileLine]) -> int | None:
    sizes = [_whole(file.size) for file in files]
    return _whole(sum(size for size in sizes if size is not None)) if None not in sizes else None


def _rows(metrics: Any, added: Sequence[_FileLine], *, removes: bool) -> int | None:
    """The rows that a commit added or changed, by its metrics; for one without, by the statistics of added files."""
    known = metrics if isinstance(metrics, dict) else {}
    written, changed = ([_number(known[name]) for name in known.keys() & names] for names in _ROWS)
    for counts in (changed, written):
        there = [count for count in counts if count is not None]
        if there:
            return _whole(sum(there))
    if removes or not added:
        return None
    stats = [parse_stats(file.stats) if isinstance(file.stats, str) else None for file in added]
    records = [None if one is None else one.num_records for one in stats]
    return _whole(sum(count for count in records if count is not None)) if None not in records else None


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else None
    return _whole(value)


def version_range(version: Any) -> tuple[int | None, int | None]:
    """The first and the last version of the argument ``version``: a version, two of them, or ``"3..7"``.

    Raises:
        InvalidArgumentError: it is none of these, or the range ends before it begins.
    """
    ends = list(version) if isinstance(version, (tuple, list)) else [version, version]
    if isinstance(version, str):
        first, dots, last = version.partition("..")
        texts = [first, last] if dots else [first, first]
        ends = [_number(text) if text else None for text in texts]
        if any(text and end is None for text, end in zip(texts, ends, strict=True)):
            ends = []
    whole = [end is None or (type(end) is int and 0 <= end < 2**63) for end in ends]
    if version is None:
        return None, None
    if len(ends) != 2 or not all(whole) or ends == [None, None]:
        raise InvalidArgumentError(f"version is a version, (first, last) or 'FIRST..LAST', not {version!r}")
    if None not in ends and ends[0] > ends[1]:
        raise InvalidArgumentError(f"the range {ends[0]} to {ends[1]} ends before it begins")
    return ends[0], ends[1]
