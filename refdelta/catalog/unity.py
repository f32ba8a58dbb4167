"""``UnityCatalog``: a client of Unity Catalog's Delta API, version 1.

A commit is a request with requirements (the table is the one that was opened) and updates (the staged file, and what it
changes in protocol, metadata and domains). The server says "conflict" without the winners, and a request that is sent
again is either nothing new (200) or a conflict: so after each conflict, and after each lost reply, the table is loaded,
and its list of commits decides.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from refdelta.catalog import delta_api as api
from refdelta.catalog.base import Catalog, CommitMode, Entry, Seen, checked_name, is_name, not_found
from refdelta.catalog.locations import place_of, refused
from refdelta.catalog.unity_http import Connection, RequestError, Token, path_of, pause, root_of
from refdelta.catalog.unity_together import ratify_together, versions_of
from refdelta.core.commit.transaction import CommitOutcome
from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.actions import DomainMetadata, Metadata, Protocol
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.log.location import open_location
from refdelta.engine.log.managed_log import FEATURE, Exists, ManagedStore, Ratified, RatifiedCommit
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CatalogMismatchError,
    ConcurrentModificationError,
    DeltaError,
    InvalidArgumentError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refdelta.table.features import REGISTRY
from refdelta_storage import Committed, StorageError, Store, Unknown
from refdelta_storage.wrappers import WrapperStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from refdelta.engine.log.managed_log import Proposal, Ratifier

_TRIES = 6
_SETTLING = 4
_EARLY_MS = 5 * 60_000
_PARTS = 3
_NEEDED = ("GET", "POST")
_PAGES = 10_000
_NAMES = 1_000_000
_LONGEST_NAME = 255
_ID = re.compile(r"[0-9A-Za-z_.-]{1,128}")

_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "azure.sas-token": "azure_storage_sas_token",
}
_S3, _AZURE = frozenset({"aws_access_key_id", "aws_secret_access_key"}), frozenset({"azure_storage_sas_token"})
# The options that a scheme needs, so that nothing of the client's own environment is used.
_KEYS = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("abfs", "abfss", "az", "azure", "wasb", "wasbs"), _AZURE),
}


@dataclass(frozen=True, slots=True)
class _Staging(Entry):
    """A table that is being created."""

    required: tuple[tuple[str, str], ...] = ()


class _Names(msgspec.Struct):
    """An entry of one of Unity Catalog's lists."""

    name: str


class _Page(msgspec.Struct):
    """A page of one of Unity Catalog's lists."""

    catalogs: list[_Names] = []
    schemas: list[_Names] = []
    tables: list[_Names] = []
    next_page_token: str | None = None


class UnityCatalog(Catalog):
    """The tables of a server that speaks Unity Catalog's Delta API, such as ``refdelta serve``.

    Names have three parts: ``catalog.schema.table``. The server chooses locations, and gives credentials for them if it
    has any; ``storage_options`` take precedence.

    Args:
        url: the server's URL: ``https://host``, with Unity Catalog's path or without it.
        token: the bearer token, or a function that returns it; None for a server that needs none.
        storage_options: options of the stores of its tables.
        allow_http: whether the token may be sent unencrypted to another machine.
        locations: the folders below which tables are opened: paths or URIs, such as ``s3://bucket/tables``. None: where
            the server gives credentials for the table, which are its own; a server on this machine (a loopback address)
            may also name folders of this machine, and places that are opened with the client's own credentials.
        ca_file: a file with the certificates of the authorities that are trusted for this server, in PEM, such as an
            organization's own; None for those of the system, or of the variable ``SSL_CERT_FILE`` of OpenSSL.

    Raises:
        InvalidArgumentError: the URL or a location is wrong, there is no such file, or urllib3 is not installed.

    Example::

        catalog = UnityCatalog(url, token)
        table = catalog.create_table("main.sales.orders", pa.schema({"id": pa.int64()}))
        write_deltalake(table, pa.table({"id": [1, 2]}), mode="append")
        catalog.tables("main.sales")
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        allow_http: bool = False,
        ca_file: str | os.PathLike[str] | None = None,
        locations: Iterable[str | os.PathLike[str]] | None = None,
    ) -> None:
        super().__init__(storage_options, locations or ())
        self._limited = locations is not None
        if token is not None and not callable(token) and not (isinstance(token, str) and token.isprintable()):
            raise InvalidArgumentError("the token is a string of printable characters, or a function that returns one")
        self._allow_http = allow_http
        self._ca_file = None if ca_file is None else os.fspath(ca_file)
        if self._ca_file is not None and not os.path.isfile(self._ca_file):  # noqa: PTH113 - a path of the user
            raise InvalidArgumentError(f"there is no file {self._ca_file} with the certificates of authorities")
        self._connection = Connection(root_of(url, allow_http=allow_http), token, self._ca_file)
        self._token = token
        self._negotiated: dict[str, frozenset[str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._locations.given if self._limited else None
        return _opened, (self.name, self._token, self._options, self._allow_http, self._ca_file, given)

    def close(self) -> None:
        """Close the connections to the server, as the end of a ``with`` block does. The catalog and its tables can be
        used again, over new connections.

        Example::

            UnityCatalog(url, token).close()
        """
        self._connection.close()

    @property
    def name(self) -> str:
        """The URL of the server."""
        return self._connection.root

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of the tables, in order. These requests are not part of the Delta API, but of Unity Catalog's.

        Args:
            namespace: only those of this catalog, or of this schema (``catalog.schema``); None for all.

        Raises:
            StoreError: the server cannot be reached, or has no such lists.

        Example::

            UnityCatalog(url, token).tables("main")
        """
        parts = namespace.split(".") if namespace is not None else []
        if not all(parts) or len(parts) >= _PARTS:
            raise InvalidArgumentError(f"a namespace is like 'main' or 'main.sales', not {namespace!r}")
        with store_errors("list the tables"):
            left = iter(range(_PAGES))
            catalogs = parts[:1] or self._list("/catalogs", "catalogs", {}, left)
            found = []
            for catalog in catalogs:
                schemas = parts[1:] or self._list("/schemas", "schemas", {"catalog_name": catalog}, left)
                for schema in schemas:
                    asked = {"catalog_name": catalog, "schema_name": schema}
                    found += [f"{catalog}.{schema}.{name}" for name in self._list("/tables", "tables", asked, left)]
                    if len(found) > _NAMES:
                        raise StorageError(f"{self.name} lists more than {_NAMES} tables: name a catalog or a schema")
        return sorted(found)

    def _list(self, path: str, kind: str, query: dict[str, str], left: Iterator[int]) -> list[str]:
        """The names on all pages of a list; ``left`` has an element for each page that may still be asked for."""
        found: list[str] = []
        seen: set[str] = set()
        for _ in left:
            page = self._connection.get(path, _Page, query)
            names = [one.name for one in getattr(page, kind)]
            if wrong := [name for name in names if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable()]:
                raise StorageError(f"{self.name} lists {wrong[0][:100]!r} among its {kind}, which is no name")
            found += names
            token = page.next_page_token
            if not token:
                return found
            if token in seen or len(found) > _NAMES:
                break
            seen.add(token)
            query = {**query, "page_token": token}
        raise StorageError(
            f"the list of {kind} at {self.name} has no end: more than {_NAMES} names, more than {_PAGES} pages in all, "
            "or a page that was there before"
        )

    def rename_table(self, name: str, new: str) -> None:
        """Rename a table within its schema. Handles that are open find the table no more: the API knows tables by their
        names.

        Args:
            name: its name.
            new: its new name, of the same catalog and schema.

        Raises:
            TableNotFoundError: the catalog has no table of this name.
            TableAlreadyExistsError: it has one of the new name.

        Example::

            catalog = UnityCatalog(url, token)
            catalog.create_table("main.sales.orders", pa.schema({"id": pa.int64()}))
            catalog.rename_table("main.sales.orders", "main.sales.orders_2026")
        """
        old, wanted = _parts(name), _parts(new)
        if old[:2] != wanted[:2]:
            raise InvalidArgumentError("Unity Catalog renames tables within their schema only")
        with store_errors(f"rename {name}"):
            entry = self._entry(name)
            request = api.RenameTable(new_name=wanted[2])
            self._change(entry, "POST", f"{_table(old)}/rename", request, new)

    def _change(self, entry: Entry, method: str, path: str, body: api.Wire | None = None, new: str = "") -> None:
        """Drop a table, or rename it, under the condition that its name still has its id.

        A request that fails without certainty is sent again only after the table was looked for: at servers that know
        the condition ``If-Match`` it never changes another table that took the name, also where it arrives late or
        twice; at others the id is compared just before.

        Args:
            entry: the table.
            method: the method of the request.
            path: its path.
            body: its body.
            new: the new name of the table; empty where it is dropped.

        Raises:
            TableNotFoundError: its name has another table, or none, and not by this request.
            TableAlreadyExistsError: the new name is taken.
            StorageError: the server refused, or it is not known whether the change was carried out.
        """
        what = f"rename {entry.name} to {new}" if new else f"drop {entry.name}"
        condition: str | None = entry.table_id
        lost: RequestError | None = None
        for number in range(1, _TRIES + 1):
            try:
                self._connection.send(method, path, NoneType, body, match=condition)
            except RequestError as error:
                last = error
                lost = lost or (None if error.certain else error)
            else:
                return
            try:
                place = self._place(entry.name, entry)
                if place == "here":
                    self._check_repeatable(last, entry, new)
                elif (place == "gone") if not new else self._place(new, entry) == "here":
                    return
            except (StorageError, TableAlreadyExistsError) as error:
                if lost is None:
                    raise
                raise self._unknown(what, entry, error) from error
            if place != "here":
                before = f"; it is not known whether it was {new} before" if new else ""
                raise TableNotFoundError(f"{self._gone(entry)}: another program has renamed or dropped it{before}")
            if last.status == 412 and last.kind != api.PRECONDITION_FAILED:
                condition = None  # the server has entity tags of its own
            pause(last, number)
        raise last if lost is None else self._unknown(what, entry, lost)

    def _check_repeatable(self, error: RequestError, entry: Entry, new: str) -> None:
        """Raise the error of a request that need not be sent again: its table is there, under the old name."""
        if not (error.passing or error.status in (404, 412)):
            self._raise(error, entry.name, new or entry.name)

    def _place(self, name: str, entry: Entry) -> Literal["here", "moved", "gone"]:
        """Look for the table under a name: ``moved`` if the server has it under another name, ``gone`` if it has none
        with this id. A server that does not know the condition ``If-Match`` answers ``gone`` in both cases.

        Raises:
            RequestError: the server refused, or gave no answer.
        """
        try:
            found = self._connection.get(_table(_parts(name)), api.LoadedTable, match=entry.table_id)
        except RequestError as error:
            if error.kind == api.PRECONDITION_FAILED:
                return "moved"
            if error.status not in (404, 412):
                raise
            if error.status == 404 or not self._has(name, entry):
                return "gone"
            return "here"
        return "here" if found.metadata.table_uuid == entry.table_id else "gone"

    def _has(self, name: str, entry: Entry) -> bool:
        try:
            return self.load(name).metadata.table_uuid == entry.table_id
        except RequestError as error:
            if error.status != 404:
                raise
            return False

    def _unknown(self, what: str, entry: Entry, error: Exception) -> StorageError:
        return StorageError(
            f"{self.name} gave no answer: it is not known whether this was carried out: {what} (the table with the id "
            f"{entry.table_id}): {error}"
        )

    def _gone(self, entry: Entry) -> str:
        return f"the catalog {self.name} has no table {entry.name} with the id {entry.table_id} any more"

    # --- for the base ---

    def _reserve(self, name: str, location: str | None, commits: CommitMode) -> Entry:
        if location is not None:
            raise InvalidArgumentError("Unity Catalog chooses the location of a managed table")
        if commits != "staged":
            raise InvalidArgumentError("Unity Catalog has staged commits only, not inline ones")
        parts = _parts(name)
        self._negotiate(parts[0])
        path = f"{api.DELTA}{path_of('catalogs', parts[0], 'schemas', parts[1], 'staging-tables')}"
        try:
            # A staging table has no name yet, so a second one does no harm.
            staged = self._connection.repeat("POST", path, api.StagingTable, api.CreateStagingTable(name=parts[2]))
        except RequestError as error:
            self._raise(error, name, name)
        required = {key: value for key, value in staged.required_properties.items() if value is not None}
        protocol = staged.required_protocol
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        if unknown := sorted(features - REGISTRY.keys()):
            raise UnsupportedFeatureError(unknown, "create", f"the catalog {self.name} requires it")
        required.update({f"delta.feature.{feature}": "supported" for feature in features})
        table_id = self._checked_id(staged.table_id)
        return _Staging(name, staged.location, True, table_id, required=tuple(sorted(required.items())))

    def _required(self, entry: Entry) -> dict[str, str]:
        return dict(entry.required) if isinstance(entry, _Staging) else {}

    def _activate(self, entry: Entry) -> None:
        catalog, schema, table = _parts(entry.name)
        store = self._store(entry)
        data = store.get(commit_key(0))
        actions = decode_commit(data, commit_key(0))
        protocol = next(one for one in actions if isinstance(one, Protocol))
        metadata = next(one for one in actions if isinstance(one, Metadata))
        domains = {
            one.domain: api.domain_body(one)
            for one in actions
            if isinstance(one, DomainMetadata) and one.domain in api.DOMAINS
        }
        request = api.CreateTable(
            name=table,
            location=entry.location,
            table_type="MANAGED",
            comment=metadata.description,
            columns=api.columns_of(metadata.schema_string),
            partition_columns=metadata.partition_columns,
            protocol=api.protocol_of(protocol),
            properties=dict(metadata.configuration or {}),
            domain_metadata=dict(domains) or None,
            last_commit_timestamp_ms=in_commit_timestamp(data, commit_key(0)),
        )
        path = f"{api.DELTA}{path_of('catalogs', catalog, 'schemas', schema, 'tables')}"
        try:
            self._connection.repeat("POST", path, api.LoadedTable, request)
        except RequestError as error:
            self._check_created(entry, error)

    def _check_created(self, entry: Entry, error: RequestError) -> None:
        """Raise the error of a creation, unless the table was created: the reply to an attempt may have been lost, or a
        gateway have sent it twice.
        """
        what = f"create {entry.name}"
        try:
            place = self._place(entry.name, entry)
        except StorageError as second:
            if error.certain:
                raise error from second
            raise self._unknown(what, entry, second) from second
        # A table that has been renamed since was created.
        if place == "gone":
            # Without the staging table, a request sent twice may have created it, and another program dropped it.
            if error.certain and error.status != 404:
                self._raise(error, entry.name, entry.name)
            raise self._unknown(what, entry, error) from error

    def _release(self, entry: Entry) -> None:
        """A staging table has no name, and the server forgets it."""

    def _register(self, name: str, location: str) -> NoReturn:  # noqa: ARG002 - not possible
        raise InvalidArgumentError(
            f"a table of the file system is registered with the server itself, and not through its Delta API: {name}"
        )

    def _entry(self, name: str, *, staging: bool = False) -> Entry:  # noqa: ARG002 - staging tables have no name
        parts = _parts(name)
        self._negotiate(parts[0])
        try:
            found = self.load(name).metadata
        except RequestError as error:
            self._raise(error, name, name)
        managed = found.table_type == "MANAGED" and f"delta.feature.{FEATURE}" in found.properties
        return Entry(name, found.location, managed, self._checked_id(found.table_uuid))

    def _checked_id(self, table_id: str) -> str:
        if _ID.fullmatch(table_id) is None:
            raise StorageError(f"{self.name} names {table_id[:100]!r} as the id of a table, which is none")
        return table_id

    def load(self, name: str) -> api.LoadedTable:
        """The server's answer about a table.

        Args:
            name: the table's name, with three parts.

        Raises:
            RequestError: it refused, or gave no answer.
        """
        return self._connection.get(_table(_parts(name)), api.LoadedTable)

    def _drop(self, entry: Entry) -> None:
        """Publish, then DELETE: a server that is no ``refdelta serve`` may not publish."""
        match self._place(entry.name, entry):
            case "gone":
                return
            case "moved":
                raise TableNotFoundError(f"{self._gone(entry)}: another program has renamed it")
        if entry.managed:
            self._managed(entry, self._store(entry)).publish()
        self._change(entry, "DELETE", _table(_parts(entry.name)))

    def _seal(self, entry: Entry, *, purge: bool) -> bool:  # noqa: ARG002 - the server publishes and drops in one request
        return False

    def _unseal(self, entry: Entry) -> bool:  # noqa: ARG002 - the server does not seal tables for its clients
        return True

    def _set_versions(self, entry: Entry, *_: Any, **__: Any) -> NoReturn:
        raise InvalidArgumentError(
            f"the versions of {entry.name} are adopted at the server, by refdelta catalog adopt with its database"
        )

    def _ratifier(self, entry: Entry, *, creates: bool = False) -> Ratifier:
        return UnityRatifier(self, entry, self._store(entry), creates)

    # Several tables, through refdelta serve.

    def _latest_of_all(self, what: str) -> dict[str, Seen]:
        return {
            one.name: Seen(
                Entry(one.name, one.location, one.managed, self._checked_id(one.table_id), one.commits), one.latest
            )
            for one in versions_of(self._connection, what).tables
            if is_name(one.name)
        }

    def _takes_part(self, entry: Entry) -> bool:
        return super()._takes_part(entry) and entry.commits == "staged"

    def _ratify(self, proposals: Sequence[Proposal]) -> list[Committed | Exists | Unknown | None]:
        return ratify_together(self._connection, proposals)

    def _managed(self, entry: Entry, store: Store) -> ManagedStore:
        return ManagedStore(store, UnityRatifier(self, entry, store))

    def _store(self, entry: Entry) -> Store:
        place = place_of(entry.location)
        if place is None or (place[0] == "file" and not self._trusts(entry)):
            raise self._refused(entry)
        if place[0] == "file":
            return open_location(entry.location, self._options)
        return _VendedStore(_Lease(self, entry))

    def _trusts(self, entry: Entry) -> bool:
        """Whether a table's location is opened with the permissions of this client."""
        if self._limited:
            return self._locations.cover(entry.location)
        return self._connection.is_local

    def _refused(self, entry: Entry) -> InvalidArgumentError:
        return refused(entry.name, entry.location, self.name, self._locations)

    def credentials(self, entry: Entry) -> tuple[dict[str, str], float | None]:
        """The storage options of a table: those of the user, and the server's credentials.

        Args:
            entry: the table, as the catalog found or staged it.

        Returns:
            The options, and the time at which they expire, in milliseconds since 1970; None if they do not.

        Raises:
            InvalidArgumentError: the table is at a place that this client does not open with its own credentials, and
                the server gives none.
            RequestError: the server refused, or gave no answer.
        """
        trusted = self._trusts(entry)
        if self._limited and not trusted:
            raise self._refused(entry)
        if isinstance(entry, _Staging):
            path = f"{api.DELTA}{path_of('staging-tables', entry.table_id, 'credentials')}"
            try:
                found = self._connection.get(path, api.Credentials)
            except RequestError as error:
                if error.status != 404:
                    raise
                found = self._of_table(entry.name)  # it has become a table
        else:
            found = self._of_table(entry.name)
        fitting = [one for one in found.storage_credentials if _covers(one.prefix, entry.location)]
        best = max(fitting, key=lambda one: len(one.prefix), default=None)
        given = {} if best is None else best.config
        options = {option: value for name, option in _OPTIONS.items() if (value := given.get(name))}
        if not all(value.isascii() and value.isprintable() for value in options.values()):
            raise StorageError(f"{self.name} gives credentials for {entry.name} with characters that no key has")
        # The server's own keys open what the server may open. With keys of the client it would choose their use.
        own = {name.lower() for name in self._options}
        needed = _KEYS.get(entry.location.partition("://")[0].lower())
        vended = needed is not None and options.keys() >= needed and not needed & own
        if not (trusted or vended):
            raise self._refused(entry)
        if best is None or not options:
            return self._options, None
        return {**options, **self._options}, best.expiration_time_ms

    def _of_table(self, name: str) -> api.Credentials:
        path = f"{_table(_parts(name))}/credentials"
        try:
            return self._connection.get(path, api.Credentials, {"operation": "READ_WRITE"})
        except RequestError as error:
            if error.status != 403:
                raise
        return self._connection.get(path, api.Credentials, {"operation": "READ"})

    def _negotiate(self, catalog: str) -> None:
        """Ask once whether the server knows this version of the API."""
        if catalog in self._negotiated:
            return
        query = {"catalog": catalog, "protocol-versions": api.VERSION}
        try:
            found = self._connection.get(f"{api.DELTA}/config", api.CatalogConfig, query)
        except RequestError as error:
            if error.kind == "NoSuchCatalogException":
                raise TableNotFoundError(f"{self.name} has no catalog {catalog!r}") from error
            raise
        if found.protocol_version.partition(".")[0] != "1":
            raise StorageError(
                f"{self.name} has version {found.protocol_version[:20]!r} of the Delta API; this is a client of "
                f"{api.VERSION}"
            )
        self._negotiated[catalog] = frozenset(found.endpoints)

    def _shares(self, entry: Entry) -> bool:
        """Whether the server commits the transactions of several clients as one version (an extension of the API that
        ``refdelta serve`` has).

        Raises:
            RequestError: it gave no answer.
        """
        catalog = _parts(entry.name)[0]
        self._negotiate(catalog)
        return api.TRANSACTIONS in self._negotiated[catalog]

    def _raise(self, error: RequestError, name: str, new: str) -> NoReturn:
        if error.kind in api.CATALOG_MISMATCHES:
            raise CatalogMismatchError(str(error), api.CATALOG_MISMATCHES[error.kind]) from error
        if error.kind in ("NoSuchTableException", "NoSuchSchemaException", "NoSuchCatalogException"):
            raise self._not_found(name) from error
        if error.kind == "AlreadyExistsException":
            raise TableAlreadyExistsError(f"the catalog {self.name} has a table {new!r}") from error
        raise error

    def _not_found(self, name: str) -> TableNotFoundError:
        try:
            known = self.tables(name.rpartition(".")[0])
        except DeltaError:  # a server without lists
            known = []
        if known:
            return not_found(name, self.name, known)
        return TableNotFoundError(f"table {name!r} does not exist in the catalog {self.name}")


def _opened(
    url: str,
    token: Token,
    options: dict[str, str],
    allow_http: bool,
    ca_file: str | None,
    locations: list[str] | None,
) -> UnityCatalog:
    return UnityCatalog(url, token, options, allow_http=allow_http, ca_file=ca_file, locations=locations)


class _GoneError(StorageError):
    """Internal: the table's name has no table any more, or another one."""


@dataclass
class UnityRatifier:
    """The part of a :class:`UnityCatalog` that is for one table, a
    :class:`~refdelta.engine.log.managed_log.Ratifier`.

    Args:
        catalog: the catalog.
        entry: the table.
        store: its folder, for publishing where the server says that too few commits are published.
        creates: whether the transaction that has it creates the table: its version 0 is in the folder, and the server
            names the table once one of its proposals is ratified.
    """

    catalog: UnityCatalog
    entry: Entry
    store: Store
    creates: bool = False
    inline: bool = field(default=False, init=False)
    maintenance: str | None = field(init=False)
    _registered: bool = field(default=False, init=False)  # the server has answered for the table

    def __post_init__(self) -> None:
        self.maintenance = (
            f"Unity Catalog permits no OPTIMIZE, VACUUM, REORG or log cleanup by its clients, and {self.entry.name} is "
            f"a table of the catalog {self.catalog.name}"
        )

    @property
    def name(self) -> str:
        """The table and its catalog, for messages."""
        return f"{self.entry.name} of the catalog {self.catalog.name}"

    def ratified(self, first: int = 0) -> Ratified:
        """Load the table."""
        try:
            loaded = self.catalog.load(self.entry.name)
        except RequestError as error:
            if error.kind in api.CATALOG_MISMATCHES:
                raise CatalogMismatchError(str(error), api.CATALOG_MISMATCHES[error.kind]) from error
            if error.status == 404 and isinstance(self.entry, _Staging) and not self._registered:
                return Ratified(0 if self.creates else -1)
            if error.status == 404:
                raise self._gone() from error
            raise
        if self.creates and not self._registered and loaded.metadata.table_uuid != self.entry.table_id:
            return Ratified(0)  # its name is taken, which the ratification finds
        self._registered = True
        return self._answer(loaded, first)

    def _answer(self, loaded: api.LoadedTable, first: int = 0) -> Ratified:
        if loaded.metadata.table_uuid != self.entry.table_id:
            raise self._gone()
        if loaded.latest_table_version is None:
            raise StorageError(f"the server names no latest version of {self.name}")
        commits = sorted(loaded.commits or (), key=lambda one: one.version)
        try:
            return Ratified(
                loaded.latest_table_version,
                tuple(
                    RatifiedCommit(one.version, one.file_size, one.timestamp, one.file_name)
                    for one in commits
                    if first <= one.version <= loaded.latest_table_version
                ),
            )
        except ValueError as error:
            raise StorageError(f"{self.name} {error}") from error

    def _is_published(self, commit: RatifiedCommit) -> bool:
        try:
            return self.store.get(commit_key(commit.version)) == commit.data
        except StorageError:
            return False

    def confirm(self, session: str) -> None:
        """Nothing: the server compares its database with the folder."""

    def _gone(self) -> StorageError:
        return _GoneError(f"the catalog {self.catalog.name} has no table {self.entry.name} any more, or another one")

    def propose(self, commit: RatifiedCommit) -> Committed | Exists | Unknown:
        """Send the commit; after a conflict or a lost reply, load the table to see whose version it is."""
        lost: RequestError | None = None
        for number in range(1, _TRIES + 1):
            try:
                self._send(commit)
                return Committed()
            except RequestError as error:
                lost = lost or (None if error.certain else error)
                last = error
            try:
                outcome = self._outcome(commit, last, lost)
                if outcome is not None:
                    return outcome
                if number == _TRIES:
                    raise last
            except _GoneError as error:
                # Dropping it published its commits. Without a lost reply, too: a gateway may have sent it twice.
                if self._is_published(commit):
                    return Committed()
                if lost is None:
                    raise
                return Unknown(error)
            except StorageError:
                if lost is None:
                    raise
                return Unknown(lost)
            pause(last, number)
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _outcome(
        self, commit: RatifiedCommit, error: RequestError, lost: RequestError | None
    ) -> Committed | Exists | Unknown | None:
        """The outcome of a proposal that failed; None if it is to be sent again. Raises where that would not help.

        Args:
            commit: the commit.
            error: the failure.
            lost: the first attempt that may have had an effect, if there was one.
        """
        if error.kind == "ResourceExhaustedException":
            self.publish()
            error.retry_after = None  # that was the reason to wait
        elif error.kind in api.CATALOG_MISMATCHES:
            raise CatalogMismatchError(str(error), api.CATALOG_MISMATCHES[error.kind]) from error
        elif error.status == 404:
            raise self._gone() from error
        elif error.status != 409 and not error.passing:
            raise error
        return self._settled(commit, lost) if error.status == 409 or lost is not None else None

    def _send(self, commit: RatifiedCommit) -> None:
        actions = decode_commit(commit.data, commit_key(commit.version)) if commit.data is not None else []
        requirements: list[api.Requirement] = [api.AssertTableUuid(uuid=self.entry.table_id)]
        before = None
        if api.changes_metadata(actions):
            # Properties are removed in comparison to those that the catalog has.
            before = self.catalog.load(self.entry.name).metadata
            requirements.append(api.AssertEtag(etag=before.etag))
        added = api.ApiCommit(
            version=commit.version,
            timestamp=commit.timestamp_ms,
            file_name=commit.file_name or "",
            file_size=commit.size,
            file_modification_timestamp=time.time_ns() // 1_000_000,
        )
        updates = [*api.metadata_updates(actions, before), api.AddCommit(commit=added)]
        self._post(api.UpdateTable(requirements=requirements, updates=updates))

    def share(self, intent: bytes, seconds: float) -> CommitOutcome | Unknown | None:
        """Send a transaction; see :meth:`~refdelta.engine.log.managed_log.SharingRatifier.share`. It is sent again,
        with its id, where the answer was lost, and while the server is at its limits.
        """
        lost: RequestError | None = None
        until, number = time.monotonic() + seconds, 0
        while True:
            try:
                return self._shared(self._send_intent(intent), lost)
            except RequestError as error:
                lost = lost or (None if error.certain else error)
                last = error
            busy = last.certain and last.kind in (api.TOO_MANY, api.UNAVAILABLE)
            number += not busy
            if last.kind == "ResourceExhaustedException":
                self.publish()
                last.retry_after = None  # that was the reason to wait
            elif not last.passing:
                break
            if number == _TRIES or time.monotonic() > until:
                break
            pause(last, max(1, number))
        # The commit alone raises the right error of a table that was dropped or renamed.
        return None if lost is None else Unknown(lost)

    def _send_intent(self, intent: bytes) -> api.TransactionReply | None:
        if not self.catalog._shares(self.entry):  # noqa: SLF001 - of this module
            return None
        path = f"{_table(_parts(self.entry.name))}/transactions"
        match = self.entry.table_id
        return self.catalog._connection.send("POST", path, api.TransactionReply, msgspec.Raw(intent), match=match)  # noqa: SLF001 - of this module

    def _shared(self, reply: api.TransactionReply | None, lost: RequestError | None) -> CommitOutcome | Unknown | None:
        """The outcome in a reply; ``lost`` is the first attempt that may have had an effect."""
        if reply is not None and reply.outcome == "conflict" and (conflict := reply.conflict) is not None:
            rule = next((one for one in RULES if one.id == conflict.rule), None)
            if rule is None:  # of a newer server
                raise ConcurrentModificationError("another transaction conflicts", conflict)
            raise rule.error(rule.sentence, conflict)
        if reply is None or reply.outcome != "committed" or reply.version is None:
            return None if lost is None else Unknown(lost)
        return CommitOutcome(
            version=reply.version,
            member=reply.member,
            attempts=reply.attempts,
            rebased_over=tuple(reply.rebased_over),
            recovered=lost is not None,
            puts=int(reply.leads),
            log=None if reply.log is None else tuple(one.encode() for one in reply.log),
        )

    def _post(self, request: api.UpdateTable) -> None:
        self.catalog._connection.send("POST", _table(_parts(self.entry.name)), api.LoadedTable, request)  # noqa: SLF001 - of this module

    def _settled(self, commit: RatifiedCommit, lost: RequestError | None) -> Committed | Exists | Unknown | None:
        """The outcome of a proposal by the server's list of commits; None if the version is still free."""
        answer = self.ratified(commit.version)
        if answer.latest < commit.version:
            return None
        found = next((one for one in answer.commits if one.version == commit.version), None)
        if found is not None and found.file_name == commit.file_name:
            return Committed()
        if found is None and lost is not None:
            return Unknown(lost)  # it is published, and may be ours: the log says whose it is
        return Exists(answer.commits)

    def publish(self) -> None:
        """Publish, since the server wants that before it ratifies more."""
        ManagedStore(self.store, self).publish()

    def published(self, version: int) -> None:
        """Report it. The request does no harm if it arrives twice."""
        request = api.UpdateTable(
            requirements=[api.AssertTableUuid(uuid=self.entry.table_id)],
            updates=[api.SetLatestBackfilledVersion(latest_published_version=version)],
        )
        try:
            self.catalog._connection.repeat("POST", _table(_parts(self.entry.name)), api.LoadedTable, request)  # noqa: SLF001 - of this module
        except RequestError as error:
            if error.kind in api.CATALOG_MISMATCHES:
                raise CatalogMismatchError(str(error), api.CATALOG_MISMATCHES[error.kind]) from error
            raise


class _Lease:
    """The store of a table by credentials of the catalog, opened again before they expire."""

    def __init__(self, catalog: UnityCatalog, entry: Entry) -> None:
        self._catalog, self._entry = catalog, entry
        self.__setstate__({})
        self.store()

    def __getstate__(self) -> dict[str, Any]:
        return {"_catalog": self._catalog, "_entry": self._entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _opened=None, _until=None)

    def store(self) -> Store:
        """The store of the moment.

        Raises:
            RequestError: the catalog gives no credentials.
        """
        with self._lock:
            now = time.time() * 1000
            if self._opened is None or (self._until is not None and now > self._until):
                options, expires = self._catalog.credentials(self._entry)
                # Some minutes before; credentials that live for less are used for half of their time.
                self._until = None if expires is None else max(expires - _EARLY_MS, now + (expires - now) / 2)
                self._opened = open_location(self._entry.location, options)
            return self._opened

    _lock: threading.Lock
    _opened: Store | None
    _until: float | None


class _VendedStore(WrapperStore):
    """The folder of a table, by credentials of the catalog."""

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease

    @property
    def inner(self) -> Store:  # type: ignore[override]
        """The store of the moment."""
        return self._lease.store()

    # Views for a few reads: these do not outlive credentials.

    def steady(self) -> Store:
        return self.inner.steady()

    def hasty(self) -> Store:
        return self.inner.hasty()

    # Objects of a service have no folders, and the block may be longer than credentials live.
    pinned = Store.pinned


def _parts(name: str) -> list[str]:
    parts = checked_name(name).split(".")
    if len(parts) != _PARTS or any("/" in part or "\\" in part for part in parts):
        raise InvalidArgumentError(f"the name of a table of Unity Catalog is like 'main.sales.orders', not {name!r}")
    return parts


def _table(parts: list[str]) -> str:
    return f"{api.DELTA}{path_of('catalogs', parts[0], 'schemas', parts[1], 'tables', parts[2])}"


def _covers(prefix: str, location: str) -> bool:
    folder = prefix.rstrip("/")
    return location.rstrip("/") == folder or location.startswith(f"{folder}/")
