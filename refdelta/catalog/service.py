"""The operations of Unity Catalog's Delta API on a :class:`SqlCatalog`, without HTTP.

The metadata of a table is what its log says, and not what a client claims: a staged commit is read before it is
ratified, so a commit that cannot be read, or that is not the one that was announced, never becomes a version.
Published files are looked for before the catalog forgets commits.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from refdelta.catalog import delta_api as api
from refdelta.catalog.base import Entry
from refdelta.catalog.groups import TableGroup
from refdelta.catalog.metrics import Metrics
from refdelta.catalog.names import spelled_name
from refdelta.catalog.sql import STAGING, TABLES, SqlCatalog, entry_of, is_sealed, unsealed
from refdelta.core.commit.intent_file import read_intent
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.log.actions import AnyAction, CommitInfo, Metadata
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import LOG, commit_key, parse_log_name
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.log.managed_log import (
    STAGED,
    CatalogReplacedError,
    Exists,
    ManagedStore,
    Proposal,
    Ratified,
    RatifiedCommit,
    named_version,
)
from refdelta.engine.log.proposed_commit import read_proposed
from refdelta.engine.log.snapshot import Snapshot, load_snapshot, next_snapshot
from refdelta.errors import (
    CatalogMismatchError,
    DeltaError,
    InvalidArgumentError,
    InvalidLogError,
    NotEnoughMemoryError,
    UnsupportedFeatureError,
)
from refdelta.operations.shared.row_rules import RowRules
from refdelta_storage import Committed, ObjectNotFoundError, StorageError, Store, Unknown

REQUIRED = ("catalogManaged", "vacuumProtocolCheck"), ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck")
"""The features of readers and of writers that a table of the catalog has."""

_SUGGESTED = {
    "reader-features": ["deletionVectors", "v2Checkpoint"],
    "writer-features": ["deletionVectors", "domainMetadata", "rowTracking", "v2Checkpoint"],
}
_SUGGESTED_PROPERTIES: dict[str, str | None] = {
    "delta.checkpointPolicy": "v2",
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
}
_REQUIRED_PROPERTIES = {"delta.enableInCommitTimestamps": "true"}

# A part of a name: what Unity Catalog allows. It is also a segment of a path.
_NAME = re.compile(r"[^\x00-\x20\x7f./\\\ufffd]{1,255}")
_ID = re.compile(r"[0-9a-f-]{36}")
_STAGING_MS = 24 * 3_600_000
_LARGEST_COMMIT = 512 * 2**20
_COMMITS_HELD = _LARGEST_COMMIT
_PART = 4 * 2**20
_AHEAD_MS = 24 * 3_600_000
_REMEMBERED = 256
_READ_ON = 100
_VENDED_MS = 3_600_000
_PAGE = 1000

_Aliases: TypeAlias = tuple[str, tuple[str, ...]]
_VENDED: tuple[tuple[_Aliases, ...], ...] = (
    (
        ("s3.access-key-id", ("aws_access_key_id", "access_key_id", "key")),
        ("s3.secret-access-key", ("aws_secret_access_key", "secret_access_key", "secret")),
        ("s3.session-token", ("aws_session_token", "session_token", "aws_token", "token")),
    ),
    (
        (
            "azure.sas-token",
            ("azure_storage_sas_token", "azure_sas_token", "sas_token", "azure_storage_sas_key", "sas_key"),
        ),
    ),
)
_CLOUDS = ("aws_", "azure_")
"""The beginnings of the variables that count as options; ``KEY`` and ``TOKEN`` may be anything."""


class ApiError(DeltaError):
    """A request that is answered with an error.

    Attributes:
        status: the status of HTTP.
        kind: the type of the error, as the API names it.
        retry_after: the seconds after which the client may try again; None without a hint.
    """

    def __init__(self, status: int, kind: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry_after = status, kind, retry_after


def invalid(message: str) -> ApiError:
    """The error for values that are refused."""
    return ApiError(400, "InvalidParameterValueException", message)


@dataclass(frozen=True)
class Row:
    """A table as the database knows it.

    Attributes:
        entry: the table.
        latest: its latest version; -1 while it is being created.
        published: the version up to which all are known to be published.
        created_ms: the time of its creation.
        sealed: whether it is being dropped, so that no commit is ratified any more.
    """

    entry: Entry
    latest: int
    published: int
    created_ms: int
    sealed: bool = False


class ServedCatalog(SqlCatalog):
    """A :class:`SqlCatalog` with what a server needs: staging tables, and tables by their ids.

    Attributes:
        keys: a file with the credentials that clients get; None for the server's own.
        metrics: counts what the server does.
    """

    keys: Path | None = None
    metrics = Metrics()

    def stage(self) -> Entry:
        """A folder and an id for a table that a client is going to create. It takes no name yet."""
        if self._warehouse is None:
            raise invalid("the server has no warehouse, so it cannot create tables")
        table_id = str(uuid.uuid4())
        entry = Entry(f"{STAGING}{table_id}", f"{self._warehouse}/{table_id}", True, table_id)
        with self._writing("forget old staging tables") as connection:
            old = sa.and_(TABLES.c.latest < 0, TABLES.c.name.startswith(STAGING, autoescape=True))
            before = time.time_ns() // 1_000_000 - _STAGING_MS
            connection.execute(sa.delete(TABLES).where(old, TABLES.c.created_ms < before))
        self._insert(entry, latest=-1)
        return entry

    def promote(self, table_id: str, name: str) -> bool:
        """Make a staging table the table of this name; False if it is none any more.

        Raises:
            TableAlreadyExistsError: the name is taken.
        """
        staged = sa.and_(
            TABLES.c.id == table_id, TABLES.c.latest == -1, TABLES.c.name.startswith(STAGING, autoescape=True)
        )
        change = sa.update(TABLES).where(staged).values(name=name, latest=0, published=0)
        entry = Entry(name, "", managed=True, table_id=table_id)
        return self._change(
            f"create {name}", entry, [change], lambda row: row is not None and row.name == name, takes=name
        )

    def row(self, **wanted: str) -> Row | None:
        """A table by its ``name`` or its ``id``; also one that is being created."""
        ((column, value),) = wanted.items()
        if column == "id" and _ID.fullmatch(value) is None:
            return None
        with self._reading("look up a table") as connection:
            row = connection.execute(sa.select(TABLES).where(TABLES.c[column] == value)).one_or_none()
        if row is None:
            spelled = value if column == "id" else spelled_name(value, self._names())
            return None if spelled == value else self.row(name=spelled)
        entry = entry_of(row, self.name)
        latest = row.latest
        if is_sealed(row):
            latest = unsealed(latest)
        return Row(entry, latest, row.published, row.created_ms, sealed=is_sealed(row))

    def drop(self, entry: Entry) -> None:
        """Drop a table by its id, with all its commits in its log; also one whose drop did not come to its end.

        Raises:
            TableNotFoundError: there is none any more.
            CatalogMismatchError: its folder has other commits than the catalog; it is not dropped.
            StorageError: the database or the store failed; the drop can be repeated.
        """
        store = self.store_of(entry)
        self._seal(entry, purge=False)
        if entry.managed:
            self._publish_sealed(entry, store)
        self._drop(entry)

    def rename(self, entry: Entry, new: str) -> None:
        """Rename a table by its id.

        Raises:
            TableNotFoundError: its name has another table by now, or none.
            TableAlreadyExistsError: the new name is taken.
        """
        self._rename(entry, new)

    def check(self) -> None:
        """Raise ``StorageError`` if the database does not answer."""
        with self._reading("see whether the database answers") as connection:
            connection.execute(sa.select(1))

    def _ratify(self, proposals: Sequence[Proposal]) -> list[Committed | Exists | Unknown | None]:
        begun, versions = time.perf_counter(), 0
        try:
            outcomes = super()._ratify(proposals)
            if all(isinstance(one, Committed) for one in outcomes):
                versions = sum(one.commit is not None for one in proposals)
            return outcomes
        finally:
            self.metrics.ratified(versions, time.perf_counter() - begun)

    def log_of(self, entry: Entry) -> ManagedStore:
        """The log of a catalog-managed table."""
        return self._managed(entry, self._store(entry))

    def store_of(self, entry: Entry) -> Store:
        """The folder of a table."""
        return self._store(entry)

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        """Tables whose names have this prefix, in order, after a name."""
        asked = (
            sa.select(TABLES)
            .where(TABLES.c.latest >= 0, TABLES.c.name.startswith(prefix, autoescape=True), TABLES.c.name > after)
            .order_by(TABLES.c.name)
            .limit(most)
        )
        with self._reading("list the tables") as connection:
            rows = connection.execute(asked).all()
        return [(row.name, Row(entry_of(row, self.name), row.latest, row.published, 0)) for row in rows]

    def vended(self) -> dict[str, str]:
        """The credentials that clients get, by the names of the API: those of the file of keys, which is read each
        time; without such a file the server's own, of its options or of its environment.

        Raises:
            InvalidArgumentError: the file cannot be read, or has no credentials.
        """
        if self.keys is not None:
            return read_keys(self.keys)
        found = {}
        environment = {name.lower(): value for name, value in os.environ.items()}
        for names in _VENDED:
            # Not a key of one and a secret of the other.
            found.update(_named(names, self._options) or _named(names, environment, _CLOUDS))
        return found


def _named(names: Sequence[_Aliases], options: Mapping[str, str], prefixes: tuple[str, ...] = ("",)) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items() if name.lower().startswith(prefixes)}
    return {
        name: value
        for name, aliases in names
        if (value := next((given[alias] for alias in aliases if given.get(alias)), None))
    }


def read_keys(file: Path) -> dict[str, str]:
    """The credentials in a file, by the names of the API: ``NAME=VALUE`` a line, with the names of storage options.

    Raises:
        InvalidArgumentError: it cannot be read, or has no credentials.
    """
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"cannot read the keys in {file}: {type(error).__name__}") from None
    given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    found = {name: value for names in _VENDED for name, value in _named(names, given).items()}
    if not found:
        known = ", ".join(aliases[0] for names in _VENDED for _, aliases in names)
        raise InvalidArgumentError(f"{file} has none of the keys {known}, as NAME=VALUE")
    return found


def open_served(
    url: str,
    warehouse: str | None,
    storage_options: Mapping[str, str] | None,
    locations: Sequence[str] | None = None,
    *,
    timeout: float | None = None,
) -> ServedCatalog:
    """Open the catalog of a server.

    Args:
        url: the URL of the database.
        warehouse: the folder for new tables, a path or a URI; None if clients cannot create tables.
        storage_options: options of the stores of its tables.
        locations: further folders whose tables are served.
        timeout: after how many seconds a wait for the database ends; None for the default.
    """
    if warehouse is not None and "://" not in warehouse:
        warehouse = Path(warehouse).absolute().as_uri()
    return ServedCatalog(url, warehouse, storage_options, locations, timeout=timeout)


class HeldBytes:
    """The bytes that requests may hold in memory together.

    Args:
        most: how many.
        what: what they are, for messages.
    """

    def __init__(self, most: int, what: str) -> None:
        self._left, self._what, self._lock = most, what, threading.Lock()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Have this many of them within the block.

        Raises:
            ApiError: other requests have them.
        """
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def take(self, size: int) -> None:
        """Take some, until :meth:`give_back`. Raises as :meth:`taken`."""
        with self._lock:
            if size > self._left:
                message = f"other requests have too much in memory for {size} bytes more of {self._what}"
                raise ApiError(503, api.UNAVAILABLE, message, retry_after=1)
            self._left -= size

    def give_back(self, size: int) -> None:
        """Give some back."""
        with self._lock:
            self._left += size


@dataclass
class _Held:
    """A table as the server remembers it."""

    log: ManagedStore
    state: Snapshot | None = None
    group: TableGroup | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class DeltaService:
    """The operations of the API. Each is for one request, and may be called by several threads.

    Args:
        catalog: the catalog.
        most_unpublished: how many commits of a table may wait to be published.
        vend: whether clients get the server's own credentials for the store.
        patience: seconds that a request waits for another one of the same table.
    """

    def __init__(
        self, catalog: ServedCatalog, *, most_unpublished: int = 100, vend: bool = False, patience: float = 30.0
    ) -> None:
        self._catalog = catalog
        self._most = most_unpublished
        self._vend = vend
        self._patience = patience
        self._commits = HeldBytes(_COMMITS_HELD, "commits")
        self._tables: OrderedDict[str, _Held] = OrderedDict()
        self._lock = threading.Lock()

    # --- tables ---

    # ``only`` is the condition ``If-Match`` with the id of the table that a request is for.

    def load(self, *parts: str, only: str | None = None) -> api.LoadedTable:
        """``loadTable``."""
        return self._loaded(self._row(*parts, only=only))

    def exists(self, *parts: str) -> None:
        """``tableExists``: raises if it does not."""
        self._row(*parts)

    def stage(self, catalog: str, schema: str, request: api.CreateStagingTable) -> api.StagingTable:
        """``createStagingTable``."""
        name = _full_name(catalog, schema, request.name)
        if self._catalog.row(name=name) is not None:
            raise _taken(name)
        entry = self._catalog.stage()
        return api.StagingTable(
            table_id=entry.table_id,
            table_type="MANAGED",
            location=entry.location,
            storage_credentials=self._credentials(entry, "READ_WRITE"),
            required_protocol=api.ApiProtocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=[*REQUIRED[0]],
                writer_features=[*REQUIRED[1]],
            ),
            required_properties={**_REQUIRED_PROPERTIES, api.TABLE_ID: entry.table_id},
            suggested_protocol=_SUGGESTED,
            suggested_properties=_SUGGESTED_PROPERTIES,
        )

    def create(self, catalog: str, schema: str, request: api.CreateTable) -> msgspec.Raw:
        """``createTable``: make a staging table a table, once its version 0 is there."""
        name = _full_name(catalog, schema, request.name)
        if request.table_type != "MANAGED":
            raise invalid("the server creates managed tables only; its operator registers tables of the file system")
        if request.uniform is not None:
            raise invalid("the server has no UniForm")
        table_id = request.properties.get(api.TABLE_ID)
        if table_id is None:
            raise invalid(f"the property {api.TABLE_ID} is missing, which the staging table requires")
        # Before the name: whether it is taken says nothing about a request that was carried out already.
        row = self._catalog.row(id=table_id)
        if row is not None and row.latest >= 0 and row.entry.name == name:
            return _encoded(self._loaded(row))
        if row is None or not row.entry.name.startswith(STAGING):
            raise ApiError(404, "NoSuchTableException", f"there is no staging table with the id {table_id}")
        if self._catalog.row(name=name) is not None:
            raise _taken(name)
        if request.location.rstrip("/") != row.entry.location.rstrip("/"):
            raise invalid("the location is not that of the staging table")
        state = self._version_zero(row.entry)
        _check_managed(state, table_id)
        _check_time(state.timestamp_ms)
        _check_same("protocol", _canonical(request.protocol), _canonical(api.protocol_of(state.protocol)))
        _check_same("columns", request.columns, api.columns_of(state.metadata.schema_string))
        _check_same("partition-columns", request.partition_columns or [], state.metadata.partition_columns)
        _check_same("last-commit-timestamp-ms", request.last_commit_timestamp_ms, state.timestamp_ms)
        _check_properties(request.properties, state.metadata)
        created = replace(row, entry=replace(row.entry, name=name), latest=0, published=0)
        reply = _encoded(self._reply(created, state.store.uri, state, Ratified(0)))
        if not self._catalog.promote(table_id, name):
            raise ApiError(404, "NoSuchTableException", f"there is no staging table with the id {table_id}")
        return reply

    def _version_zero(self, entry: Entry) -> Snapshot:
        key = commit_key(0)
        log = self._catalog.log_of(entry)
        try:
            size = log.inner.head(key).size
            if size > _LARGEST_COMMIT:
                raise invalid(f"version 0 has more than {_LARGEST_COMMIT} bytes")
            with self._commits.taken(size):
                actions = decode_commit(log.inner.get_range(key, 0, size), key)
                return _read(log, None, actions, size)
        except ObjectNotFoundError:
            raise invalid("version 0 of the table is not at the location of the staging table") from None
        except InvalidLogError as error:
            raise invalid(f"version 0 of the table cannot be read: {error}") from error

    def drop(self, *parts: str, only: str | None = None) -> None:
        """``deleteTable``: from the catalog. Its files stay, and all its commits are in its log. A table whose drop did
        not come to its end is loaded as before, so that a client can drop it again.
        """
        row = self._row(*parts, only=only)
        self._catalog.drop(row.entry)
        with self._lock:
            self._tables.pop(row.entry.table_id, None)

    def rename(self, catalog: str, schema: str, table: str, request: api.RenameTable, only: str | None = None) -> None:
        """``renameTable``: within its schema."""
        row = self._row(catalog, schema, table, only=only)
        self._catalog.rename(row.entry, _full_name(catalog, schema, request.new_name))

    # --- commits ---

    def update(self, catalog: str, schema: str, table: str, request: api.UpdateTable) -> msgspec.Raw:
        """``updateTable``: ratify a commit, or take note of published ones. The ratification comes last, with its
        answer made before: so a request that fails has ratified nothing, unless the database gave no answer.
        """
        by_kind = _once(request)
        try:
            row = self._row(catalog, schema, table, sealed=False)
            etag = _checked_requirements(row, request)
        except ApiError:
            # A request that comes a second time, when its table was renamed.
            if (renamed := self._accepted_elsewhere(request, by_kind.get(api.AddCommit))) is not None:
                return _encoded(self._loaded(renamed))
            raise
        if not row.entry.managed:
            raise invalid("the commits of an external table do not go through the catalog")
        self._check_staged(row)
        held = self._held(row.entry)
        if self._was_accepted(row, held, by_kind.get(api.AddCommit)):
            return _encoded(self._loaded(row))
        if etag is not None and etag != _etag(row.entry.table_id, row.latest):
            raise _requirement("assert-etag: the table has changed since it was loaded")
        unknown = by_kind.pop(api.UpdateSnapshotVersion, None)
        if unknown is not None:
            raise invalid("update-metadata-snapshot-version is for external tables")
        added, backfilled = by_kind.pop(api.AddCommit, None), by_kind.pop(api.SetLatestBackfilledVersion, None)
        if by_kind and added is None:
            raise invalid("changes of metadata come with the commit that makes them: add-commit is missing")
        if added is not None and added.uniform is not None:
            raise invalid("the server has no UniForm")
        if backfilled is not None:
            version = backfilled.latest_published_version
            self._check_published(row, held, version)
            if version > row.published:
                held.log.ratifier.published(version)
                row = replace(row, published=version)
        reply = None
        if added is not None:
            reply = self._commit(row, held, added.commit, [*by_kind.values()])
        return _encoded(self._loaded(row)) if reply is None else reply

    def transact(self, catalog: str, schema: str, table: str, body: bytes, only: str | None) -> api.TransactionReply:
        """Commit a transaction with those of other clients, see :data:`~refdelta.catalog.delta_api.TRANSACTIONS`.

        Args:
            catalog: the first part of the table's name.
            schema: the second part.
            table: the last part.
            body: the transaction, as an intent.
            only: the id of the table.

        Raises:
            CommitOutcomeUnknownError: it may be committed or not.
            ApiError: it was refused, and has had no effect.
        """
        if only is None:
            raise invalid('a transaction names its table in the header If-Match: "<id>"')
        intent = read_intent(body)
        if intent is None:
            raise invalid("the body is no transaction of the form that this server knows")
        row = self._row(catalog, schema, table, only=only, sealed=False)
        if not row.entry.managed:
            raise invalid("the commits of an external table do not go through the catalog")
        self._check_staged(row)
        self._check_waiting(row.latest - row.published)
        held = self._held(row.entry)

        def look() -> Snapshot:
            with self._alone(held):
                return self._state(held, held.log.ask())

        with self._lock:
            group = held.group
        if group is None:
            found = look()
            with self._lock:
                group = held.group = held.group or TableGroup(found, look, self._catalog.metrics.members)
        return group.transact(intent, _check_readable)

    def _check_waiting(self, waiting: int) -> None:
        if waiting >= self._most:
            message = f"{waiting} commits are not published; publish them first"
            raise ApiError(429, "ResourceExhaustedException", message, retry_after=1)

    def _accepted_elsewhere(self, request: api.UpdateTable, added: api.AddCommit | None) -> Row | None:
        """The table that a request names by its id alone, if its commit was ratified before."""
        wanted = next((one.uuid.lower() for one in request.requirements if isinstance(one, api.AssertTableUuid)), None)
        row = None if wanted is None else self._catalog.row(id=wanted)
        if row is None or row.latest < 0 or not row.entry.managed or row.entry.commits == "inline":
            return None
        return row if self._was_accepted(row, self._held(row.entry), added) else None

    def _was_accepted(self, row: Row, held: _Held, added: api.AddCommit | None) -> bool:
        """Whether the request was carried out before: then it changes nothing, and no condition counts."""
        if added is None:
            return False
        commit = added.commit
        if named_version(commit.file_name) != commit.version:
            wanted = f"{commit.version:020d}.<uuid>.json"
            raise invalid(f"the file name of a commit for version {commit.version} is {wanted}")
        return commit.version <= row.latest and self._is_accepted(held, held.log.ask(), commit)

    def _commit(self, row: Row, held: _Held, commit: api.ApiCommit, changes: list[api.Update]) -> msgspec.Raw | None:
        """Ratify a commit. Returns the answer, or None if it was ratified before."""
        if self._is_next(held, commit, row.published) is None:
            return None
        if commit.file_size > _LARGEST_COMMIT:
            raise invalid(f"a commit has at most {_LARGEST_COMMIT} bytes")
        with self._commits.taken(commit.file_size):
            # Read before other requests have to wait.
            actions = self._staged(held, commit)
            with self._alone(held):
                answer = self._is_next(held, commit, row.published)
                if answer is None:
                    return None
                before = self._state(held, Ratified(commit.version - 1))
                after = _next_state(held.log, before, commit, actions, row.entry.table_id)
                _check_changes(changes, after)
                proposed = RatifiedCommit(commit.version, commit.file_size, commit.timestamp, commit.file_name)
                now = Ratified(commit.version, (*answer.commits, proposed))
                reply = _encoded(self._reply(row, held.log.uri, after, now))
                outcome = self._ratify(held, proposed)
                if isinstance(outcome, Unknown):
                    raise ApiError(500, "CommitStateUnknownException", "the database gave no answer to the commit")
                if isinstance(outcome, Exists):
                    known = {one.version: one.file_name for one in outcome.winners}
                    if known.get(commit.version) == commit.file_name:
                        return None
                    raise _conflict(commit.version, held.log.ask().latest)
                held.state = after
        return reply

    @staticmethod
    def _ratify(held: _Held, proposed: RatifiedCommit) -> Committed | Exists | Unknown:
        try:
            return held.log.ratifier.propose(proposed)
        except CatalogReplacedError:
            held.log.ask()  # compares the database with the folder
            return held.log.ratifier.propose(proposed)

    def _is_next(self, held: _Held, commit: api.ApiCommit, published: int) -> Ratified | None:
        """The answer of the database if the commit is for the next version; None if it was ratified before."""
        answer = held.log.ask()
        if commit.version <= answer.latest:
            if self._is_accepted(held, answer, commit):
                return None
            raise _conflict(commit.version, answer.latest)
        if commit.version > answer.latest + 1:
            raise invalid(f"the next version is {answer.latest + 1}, not {commit.version}")
        self._check_backlog(answer, published)
        return answer

    def _check_backlog(self, answer: Ratified, published: int) -> None:
        """Refuse one more commit where too many wait to be published."""
        waiting = answer.latest - max(published, answer.commits[0].version - 1 if answer.commits else answer.latest)
        self._check_waiting(waiting)

    def _is_accepted(self, held: _Held, answer: Ratified, commit: api.ApiCommit) -> bool:
        """Whether a commit is sent again that was ratified before. Once it is published, its content decides."""
        known = next((one for one in answer.commits if one.version == commit.version), None)
        if known is not None:
            return known.file_name == commit.file_name
        staged, published = f"{STAGED}/{commit.file_name}", commit_key(commit.version)
        inner, size = held.log.inner, commit.file_size
        try:
            if size > _LARGEST_COMMIT or {inner.head(staged).size, inner.head(published).size} != {size}:
                return False
            parts = ((at, _PART) for at in range(0, size, _PART))
            return all(inner.get_range(staged, *part) == inner.get_range(published, *part) for part in parts)
        except ObjectNotFoundError:
            return False

    def _staged(self, held: _Held, commit: api.ApiCommit) -> list[AnyAction]:
        """The actions of a staged commit. A client may not have written it, or not as it says."""
        key = f"{STAGED}/{commit.file_name}"
        try:
            size = held.log.inner.head(key).size
            if size != commit.file_size:
                raise invalid(f"the staged file has {size} bytes, and not {commit.file_size}")
            data = held.log.inner.get_range(key, 0, size)
            actions = decode_commit(data, key)
            timestamp = in_commit_timestamp(actions, key)
        except ObjectNotFoundError:
            raise invalid(f"there is no staged file {commit.file_name}") from None
        except InvalidLogError as error:
            raise invalid(f"the staged file is no commit: {error}") from error
        if timestamp != commit.timestamp:
            raise invalid(f"the in-commit timestamp of the staged file is {timestamp}, and not {commit.timestamp}")
        return actions

    def _check_published(self, row: Row, held: _Held, version: int) -> None:
        """Refuse to forget commits that are not in the log: they would be lost."""
        answer = held.log.ask()
        if version > answer.latest:
            raise invalid(f"version {version} is not ratified: the latest is {answer.latest}")
        wanted = {one.version: one for one in answer.commits if one.version <= version}
        if not wanted:
            return
        there = set()
        for info in held.log.inner.list(f"{LOG}/", after=commit_key(min(wanted) - 1)):
            name = parse_log_name(info.key)
            if name is not None and name.kind == "commit":
                there.add(name.version)
                if name.version >= version:
                    break
        for number, commit in sorted(wanted.items()):
            if number not in there:
                message = f"version {number} is not published: its file is not in the log of {row.entry.name}"
                raise invalid(message)
            if not held.log.is_published(commit):
                raise CatalogMismatchError(
                    f"{held.log.ratifier.name} does not agree with the folder {held.log.uri}: {commit_key(number)} is "
                    "not the commit that the catalog has ratified as this version. refdelta catalog adopt NAME goes on "
                    "with what the folder has",
                    "other content",
                )

    # --- the state of a table ---

    def _held(self, entry: Entry) -> _Held:
        with self._lock:
            held = self._tables.get(entry.table_id)
            if held is None:
                held = self._tables[entry.table_id] = _Held(self._catalog.log_of(entry))
            self._tables.move_to_end(entry.table_id)
            while len(self._tables) > _REMEMBERED:
                self._tables.popitem(last=False)
            return held

    @contextmanager
    def _alone(self, held: _Held) -> Iterator[None]:
        if not held.lock.acquire(timeout=self._patience):
            raise ApiError(429, api.TOO_MANY, "other requests are at work on this table", retry_after=1)
        try:
            yield
        finally:
            held.lock.release()

    def _state(self, held: _Held, answer: Ratified) -> Snapshot:
        """The latest version without its files: from the commits since the last one that was asked for, or from the
        log.
        """
        state = held.state
        if state is None or not 0 <= answer.latest - state.version <= _READ_ON:
            state = load_snapshot(held.log, answer.latest).without_content()
        try:
            for version in range(state.version + 1, answer.latest + 1):
                key = commit_key(version)
                data = held.log.get(key)
                state = next_snapshot(held.log, state, decode_commit(data, key), len(data))
        except ObjectNotFoundError:  # removed by log cleanup
            state = load_snapshot(held.log, answer.latest).without_content()
        held.state = state
        return state

    def _loaded(self, row: Row) -> api.LoadedTable:
        entry = row.entry
        if not entry.managed:
            store = self._catalog.store_of(entry)
            return self._reply(row, store.uri, load_snapshot(store), None)
        self._check_staged(row)
        held = self._held(entry)
        with self._alone(held):
            answer = held.log.ask()
            return self._reply(row, held.log.uri, self._state(held, answer), answer)

    def _reply(self, row: Row, location: str, state: Snapshot, answer: Ratified | None) -> api.LoadedTable:
        entry = row.entry
        latest = state.version if answer is None else answer.latest
        return api.LoadedTable(
            metadata=api.TableMetadata(
                etag=_etag(entry.table_id, latest),
                table_type="MANAGED" if entry.managed else "EXTERNAL",
                table_uuid=entry.table_id,
                location=location,
                created_time=row.created_ms,
                updated_time=state.timestamp_ms,
                columns=api.columns_of(state.metadata.schema_string),
                partition_columns=state.metadata.partition_columns,
                properties=api.properties_of(state.protocol, state.metadata, dict(state.domains)),
            ),
            commits=None if answer is None else [_api_commit(one) for one in reversed(answer.commits)],
            latest_table_version=None if answer is None else answer.latest,
        )

    @staticmethod
    def _check_staged(row: Row) -> None:
        if row.entry.commits == "inline":
            message = "the catalog holds the commits of this table inline, and Unity Catalog's API has staged ones only"
            raise ApiError(400, "UnsupportedTableFormatException", message)

    def _row(self, *parts: str, only: str | None = None, sealed: bool = True) -> Row:
        name = _full_name(*parts)
        row = self._catalog.row(name=name) if only is None else self._catalog.row(id=only)
        if row is None or row.latest < 0:
            raise _no_table(name)
        if row.sealed and not sealed:
            raise ApiError(404, "NoSuchTableException", f"the table {name} is being dropped")
        if row.entry.name.lower() != name.lower():
            raise ApiError(412, api.PRECONDITION_FAILED, f"the table with the id {only} is not {name}")
        return row

    # --- credentials, metrics, configuration, names ---

    def check(self) -> None:
        """Raise ``StorageError`` if the database does not answer."""
        self._catalog.check()

    def credentials(self, operation: str | None, *parts: str) -> api.Credentials:
        """``getTableCredentials``."""
        entry = self._row(*parts).entry
        if operation == "READ":
            return api.Credentials(storage_credentials=self._credentials(entry, "READ"))
        if operation == "READ_WRITE":
            return api.Credentials(storage_credentials=self._credentials(entry, "READ_WRITE"))
        raise ApiError(400, "BadRequestException", "the parameter operation is READ or READ_WRITE")

    def staging_credentials(self, table_id: str) -> api.Credentials:
        """``getStagingTableCredentials``."""
        row = self._catalog.row(id=table_id)
        if row is None or row.latest >= 0:
            raise ApiError(404, "NoSuchTableException", "there is no staging table with this id")
        return api.Credentials(storage_credentials=self._credentials(row.entry, "READ_WRITE"))

    def _credentials(self, entry: Entry, operation: api.Operation) -> list[api.StorageCredential]:
        found: dict[str, str | None] = dict(self._catalog.vended()) if self._vend else {}
        if not found:
            return []
        return [
            api.StorageCredential(
                prefix=self._catalog.store_of(entry).uri,
                operation=operation,
                expiration_time_ms=time.time_ns() // 1_000_000 + _VENDED_MS,
                config=found,
            )
        ]

    def metrics(self, catalog: str, schema: str, table: str, request: api.ReportMetrics) -> None:
        """``reportMetrics``: checked, and not kept."""
        row = self._row(catalog, schema, table)
        if request.table_id.lower() != row.entry.table_id:
            raise invalid("the table-id is not that of the table")
        report = request.report.commit_report if request.report else None
        histogram = report.file_size_histogram if report else None
        if histogram is not None:
            lengths = {len(histogram.sorted_bin_boundaries), len(histogram.file_counts), len(histogram.total_bytes)}
            if len(lengths) > 1 or histogram.sorted_bin_boundaries[:1] != [0]:
                raise invalid("the lists of a histogram have one length, and its first bin begins at 0")

    def config(self, catalog: str | None, versions: str | None, endpoints: list[str]) -> api.CatalogConfig:
        """``getConfig``."""
        if not catalog or not versions:
            raise ApiError(400, "BadRequestException", "the parameters catalog and protocol-versions are required")
        _checked_part("catalog", catalog)
        known = [re.fullmatch(r"(\d{1,9})\.\d{1,9}", one.strip()) for one in versions.split(",")]
        if not all(known) or not any(one and int(one.group(1)) == 1 for one in known):
            message = f"the server has protocol version {api.VERSION}; protocol-versions is a list such as 1.0"
            raise ApiError(400, "BadRequestException", message)
        return api.CatalogConfig(endpoints=endpoints, protocol_version=api.VERSION)

    def names(self, prefix: Sequence[str], most: int, token: str) -> tuple[list[tuple[str, Row]], str | None]:
        """A page of the tables of a schema, for the lists of Unity Catalog's other API.

        Returns:
            The last part of each name and the table, and the token of the next page.
        """
        for part in prefix:
            _checked_part("catalog or schema", part)
        if token and not all(map(_NAME.fullmatch, token.split("."))):
            raise ApiError(400, "BadRequestException", "page_token is none of this server")
        start = "".join(f"{part}." for part in prefix)
        most = max(1, min(most, _PAGE)) if most else _PAGE
        found = self._catalog.page(start, token, most)
        last = found[-1][0] if len(found) == most else None
        return [(name.removeprefix(start), row) for name, row in found if name.count(".") == len(prefix)], last

    def groups(self, prefix: Sequence[str]) -> list[str]:
        """The catalogs, or the schemas of a catalog, that have tables."""
        for part in prefix:
            _checked_part("catalog", part)
        start = "".join(f"{part}." for part in prefix)
        names = (name.split(".") for name in self._catalog.tables() if name.startswith(start))
        return sorted({parts[len(prefix)] for parts in names if len(parts) == 3})


# --- checks ---


def _full_name(*parts: str) -> str:
    for kind, part in zip(("catalog", "schema", "table"), parts, strict=True):
        _checked_part(kind, part)
    return ".".join(parts)


def _checked_part(kind: str, part: str) -> None:
    if _NAME.fullmatch(part) is None or not part.isprintable():
        raise ApiError(400, "BadRequestException", f"the name of a {kind} has 1 to 255 characters, and no dot, slash, "
                       "space or control character")  # fmt: skip


def _checked_requirements(row: Row, request: api.UpdateTable) -> str | None:
    """Check that the table is the one that the client has opened. Returns the etag that it requires, if it does."""
    found = {type(one): one for one in request.requirements}
    if len(found) < len(request.requirements):
        raise invalid("a requirement is there twice")
    wanted, etag = found.get(api.AssertTableUuid), found.get(api.AssertEtag)
    if not isinstance(wanted, api.AssertTableUuid):
        raise invalid("the requirement assert-table-uuid is missing")
    if wanted.uuid.lower() != row.entry.table_id:
        raise _requirement("assert-table-uuid: the table of this name is another one")
    return etag.etag if isinstance(etag, api.AssertEtag) else None


def _once(request: api.UpdateTable) -> dict[type, Any]:
    found: dict[type, Any] = {type(one): one for one in request.updates}
    if len(found) < len(request.updates):
        raise invalid("an action is there twice: a request has at most one of each kind")
    both = (
        (api.SetProperties, "updates", api.RemoveProperties, "removals"),
        (api.SetDomainMetadata, "updates", api.RemoveDomainMetadata, "domains"),
    )
    for kept, kept_field, removed, removed_field in both:
        if kept in found and removed in found:
            twice = set(getattr(found[kept], kept_field)) & set(getattr(found[removed], removed_field))
            if twice:
                raise invalid(f"a request both sets and removes {min(twice)!r}")
    return found


def _next_state(
    log: ManagedStore, before: Snapshot, commit: api.ApiCommit, actions: Sequence[AnyAction], table_id: str
) -> Snapshot:
    """The state after a commit, if it may follow."""
    if commit.timestamp <= before.timestamp_ms:
        raise invalid(f"the in-commit timestamp {commit.timestamp} is not after that of the version before, "
                      f"{before.timestamp_ms}")  # fmt: skip
    _check_time(commit.timestamp, before.timestamp_ms + 1)
    after = _read(log, before, actions, commit.file_size)
    if after.protocol is not before.protocol or after.metadata is not before.metadata:
        # A table that was made without this API does not have the property.
        known = (before.metadata.configuration or {}).get(api.TABLE_ID)
        _check_managed(after, table_id if known else None)
    return after


def _read(log: Store, before: Snapshot | None, actions: Sequence[AnyAction], size: int) -> Snapshot:
    try:
        after = read_proposed(log, before, actions, size)
        if before is None or after.metadata is not before.metadata:
            with suppress(UnsupportedFeatureError):  # the expressions may have functions of another engine
                RowRules.after(after)
    except NotEnoughMemoryError:
        raise
    except DeltaError as error:
        raise invalid(f"readers would refuse this version: {error}") from error
    return after


def _check_readable(before: Snapshot, prepared: PreparedCommit) -> None:
    """Refuse a transaction that readers would refuse as the next version."""
    info = CommitInfo({**prepared.commit_info, "inCommitTimestamp": before.timestamp_ms + 1})
    _read(before.store, before, [info, *prepared.actions], 0)


def _check_time(timestamp: int, least: int = 0) -> None:
    """Refuse a time that is far in the future: all later versions would have to be after it.

    Args:
        timestamp: the in-commit timestamp.
        least: the least one that the commit may have, whatever the clock says.
    """
    now = time.time_ns() // 1_000_000
    if timestamp > max(now + _AHEAD_MS, least):
        raise invalid(f"the in-commit timestamp {timestamp} is more than a day after the time of this server, {now}: "
                      "one of the clocks is wrong")  # fmt: skip


def _check_managed(state: Snapshot, table_id: str | None) -> None:
    """Refuse a table that other engines would not leave to its catalog."""
    for features, required, side in (
        (state.protocol.reader_features, REQUIRED[0], "reader"),
        (state.protocol.writer_features, REQUIRED[1], "writer"),
    ):
        missing = [one for one in required if one not in (features or ())]
        if missing:
            raise invalid(f"the protocol of a managed table has the {side} feature {missing[0]}")
    configuration = state.metadata.configuration or {}
    wanted = {**_REQUIRED_PROPERTIES, **({api.TABLE_ID: table_id} if table_id else {})}
    for name, value in wanted.items():
        if configuration.get(name) != value:
            raise invalid(f"the property {name} of the table is {configuration.get(name)!r}, and not {value!r}")


def _check_changes(changes: list[api.Update], after: Snapshot) -> None:
    """Refuse changes of metadata that are not those of the commit: the log decides, and a client that says something
    else is mistaken.
    """
    for change in changes:
        match change:
            case api.SetProperties(updates=updates):
                _check_properties(updates, after.metadata)
            case api.RemoveProperties(removals=removals):
                kept = set(removals).intersection(after.metadata.configuration or {})
                if kept:
                    raise invalid(f"remove-properties has {min(kept)!r}, which the commit keeps")
            case api.SetColumns(columns=columns):
                _check_same("columns", columns, api.columns_of(after.metadata.schema_string))
            case api.SetPartitionColumns(partition_columns=columns):
                _check_same("partition-columns", columns, after.metadata.partition_columns)
            case api.SetTableComment(comment=comment):
                _check_same("comment", comment, after.metadata.description or "")
            case api.SetProtocol(protocol=protocol):
                _check_same("protocol", _canonical(protocol), _canonical(api.protocol_of(after.protocol)))
            case api.SetDomainMetadata(updates=domains):
                for name, body in domains.items():
                    found = api.domain_body(after.domains[name]) if name in after.domains else None
                    _check_same(f"domain {name}", body, found)
            case api.RemoveDomainMetadata(domains=removed):
                if left := set(removed).intersection(after.domains):
                    raise invalid(f"remove-domain-metadata has {min(left)!r}, which the commit keeps")


def _check_properties(properties: Mapping[str, str], metadata: Metadata) -> None:
    configuration = metadata.configuration or {}
    for name, value in properties.items():
        if not api.is_derived(name) and configuration.get(name) != value:
            raise invalid(f"the property {name!r} has another value in the request than in the commit")


def _check_same(what: str, sent: Any, found: Any) -> None:
    if sent != found:
        raise invalid(f"{what}: the request has another value than the commit")


def _canonical(protocol: api.ApiProtocol) -> tuple[Any, ...]:
    features = (protocol.reader_features, protocol.writer_features)
    return protocol.min_reader_version, protocol.min_writer_version, *(sorted(one or ()) for one in features)


def _encoded(reply: api.LoadedTable) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(reply))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise invalid(f"the API cannot show the table: {error}") from error


def _api_commit(commit: RatifiedCommit) -> api.ApiCommit:
    if commit.file_name is None:
        raise StorageError(f"version {commit.version} has no staged file")
    return api.ApiCommit(
        version=commit.version,
        timestamp=commit.timestamp_ms,
        file_name=commit.file_name,
        file_size=commit.size,
        file_modification_timestamp=commit.timestamp_ms,
    )


def _etag(table_id: str, latest: int) -> str:
    return f"{table_id}-{latest}"


def _no_table(name: str) -> ApiError:
    return ApiError(404, "NoSuchTableException", f"there is no table {name}")


def _taken(name: str) -> ApiError:
    return ApiError(409, "AlreadyExistsException", f"there is a table {name}")


def _conflict(version: int, latest: int) -> ApiError:
    return ApiError(409, "CommitVersionConflictException", f"version {version} is taken: the latest is {latest}")


def _requirement(message: str) -> ApiError:
    return ApiError(409, "UpdateRequirementConflictException", message)
