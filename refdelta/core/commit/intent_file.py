"""The file of an intent: a transaction with all that a leader needs to check and to commit it.

Rows to delete are positions, and no deletion vectors, since the leader writes one vector for all members that delete
rows of a file. A transaction that cannot be in such a file (:func:`encode_intent` returns None) goes alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from pyroaring import BitMap64

from refdelta.core.commit.intents import Head, Named
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import Read, ReadSet
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.errors import DeltaError, InvalidLogError
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Metadata
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import LOG
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.file_state import ReadFile
from refdelta.core.rows.sets import ALL, All, Rows

FOLDER: Final = f"{LOG}/_intents"
"""The folder of the intents. It is in the log's: to write an intent is to commit, so both need the same permission."""

MAX_BYTES: Final = 2**20
"""The greatest size of an intent, in bytes."""

REFUSED: Final = "refused"
"""The field of commitInfo with the transactions that conflict: an object, by id, with the reasons."""

WITHDRAWN: Final = "withdrawn"
"""The field of commitInfo with the ids of the transactions that will never be committed: a list."""

LEAD_MS: Final = "leadMs"
"""The field of commitInfo with the time that its leader worked for the version before it, in milliseconds."""


WRITER: Final = "writer"
"""The field of commitInfo with a name of the writer, which is another one for each that commits with intents: by it
others count the writers of a table.
"""


class _ReadRows(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    predicate: str
    finer: bool = False


class _ReadOfFile(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    vector: DeletionVectorDescriptor | None = None
    rows: str | None = None


class _Reads(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    rows: list[_ReadRows] = []
    files: dict[str, _ReadOfFile] = {}
    statistics: dict[str, str] = {}
    app_ids: list[str] = []
    domains: list[str] = []
    every_domain: bool = False
    unowned_since: int | None = None
    written_since: int | None = None


class _Delete(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    add: str
    base: str
    rows: str | None


class Intent(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The content of an intent. One with unknown fields, or of another format, is left out.

    Attributes:
        format: the number of this format.
        id: the id of its transaction.
        base: see :class:`~refdelta.core.commit.intents.Head`.
        base_hash: likewise.
        replaces: likewise.
        read_version: the version that the transaction read.
        metadata_hash: a hash of the metadata that it read.
        level: its isolation level.
        commit_info: the fields of its commitInfo.
        actions: its staged actions, as lines of a commit file.
        reads: its reads.
        deletes: the rows that it deletes.
        vectors: whether deletion vectors may be written.
        row_level: whether conflicts are decided by rows.
        now_ms: the time of its tombstones, in milliseconds since 1970.
        written_ms: when its first data file may have been written, likewise; the time of the intent without one.
        records_predicates: whether its commitInfo records the predicates.
    """

    format: Literal[1]
    id: str
    base: int
    base_hash: str
    replaces: tuple[str, ...] = ()
    read_version: int
    metadata_hash: str
    level: str
    commit_info: dict[str, Any]
    actions: str
    reads: _Reads
    deletes: list[_Delete] = []
    vectors: bool = False
    row_level: bool = False
    now_ms: int = 0
    written_ms: int = 0
    records_predicates: bool = True

    @property
    def head(self) -> Head:
        """The part that the rules need."""
        return Head(id=self.id, base=self.base, base_hash=self.base_hash, replaces=self.replaces)


def intent_key(base: int, txn_id: str) -> str:
    """The key of an intent. It begins with a letter: some readers take every name of digits for a commit."""
    return f"{FOLDER}/i-{base:020d}-{txn_id}.json"


def parse_intent_key(key: str) -> tuple[int, str] | None:
    """The base and the id in the key of an intent; None for other files."""
    name = key.removeprefix(f"{FOLDER}/")
    if name == key or "/" in name or not (name.startswith("i-") and name.endswith(".json")):
        return None
    base, txn_id = name[2:22], name[23:-5]
    return (int(base), txn_id) if base.isdecimal() and base.isascii() and len(base) == 20 and txn_id else None


def hash_of(data: bytes) -> str:
    """The hash of a commit file."""
    return hashlib.sha256(data).hexdigest()


def metadata_hash(metadata: Metadata | None) -> str:
    """The hash of metadata: a leader checks an intent by the schema and the properties that both have read."""
    return hash_of(b"" if metadata is None else encode_commit([metadata]))


def encode_intent(
    prepared: PreparedCommit, base: int, base_hash: str, *, replaces: Sequence[str] = (), now_ms: int = 0
) -> bytes | None:
    """The file of an intent.

    Args:
        prepared: the transaction.
        base: the newest version that was read and checked.
        base_hash: the hash of its commit file; empty for a table of a catalog, whose versions are never replaced.
        replaces: the ids of the earlier tries of the same work.
        now_ms: the time, in milliseconds since 1970.

    Returns:
        None if the transaction cannot be checked from a file, or if the file would be too large.
    """
    reads, changes = prepared.read_set, prepared.changes
    if prepared.table is None or prepared.metadata_at is not None or prepared.rests_on or changes.groups:
        return None
    intent = Intent(
        format=1,
        id=prepared.txn_id,
        base=base,
        base_hash=base_hash,
        replaces=tuple(replaces),
        read_version=prepared.read_version,
        metadata_hash=metadata_hash(prepared.table.metadata),
        level=prepared.level.value,
        commit_info=dict(prepared.commit_info),
        actions=encode_commit(prepared.actions).decode(),
        reads=_Reads(
            rows=[_ReadRows(one.predicate.text, one.finer) for one in reads.reads],
            files={path: _ReadOfFile(one.vector, _text(one.rows)) for path, one in reads.files.items()},
            statistics=dict(reads.statistics),
            app_ids=sorted(reads.app_ids),
            domains=sorted(reads.domains),
            every_domain=reads.every_domain,
            unowned_since=reads.unowned_since,
            written_since=reads.written_since,
        ),
        deletes=[
            _Delete(encode_commit([one.add]).decode(), _text(one.base) or "", _text(one.rows))
            for one in changes.deletes
        ],
        vectors=changes.vectors,
        row_level=changes.row_level,
        now_ms=changes.now_ms,
        written_ms=now_ms if reads.written_since is None else reads.written_since,
        records_predicates=prepared.records_predicates,
    )
    data = msgspec.json.encode(intent)
    return data if len(data) <= MAX_BYTES else None


_INTENT: Final = msgspec.json.Decoder(Intent)


def read_intent(data: bytes) -> Intent | None:
    """An intent; None for content that is none, is of another format or too large."""
    if len(data) > MAX_BYTES:
        return None
    try:
        return _INTENT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_intent(data: bytes, key: str) -> Intent | None:
    """An intent in a file; None as :func:`read_intent`, and for a file that is named otherwise."""
    intent = read_intent(data)
    return intent if intent is not None and parse_intent_key(key) == (intent.base, intent.id) else None


def prepared_of(intent: Intent, like: PreparedCommit) -> PreparedCommit | None:
    """The transaction of an intent, as one that commits beside another.

    Args:
        intent: the intent.
        like: the leader's own transaction, whose table, clock and row ids it gets: it has the metadata that the intent
            has read, and rows get their ids and versions their times in the order of the log.

    Returns:
        None if it has read other metadata, or its content is not valid.
    """
    table = like.table
    if table is None or table.parse is None or metadata_hash(table.metadata) != intent.metadata_hash:
        return None
    try:
        return PreparedCommit(
            read_version=intent.read_version,
            read_set=ReadSet(
                version=intent.read_version,
                reads=tuple(Read(table.parse(one.predicate), one.finer) for one in intent.reads.rows),
                files={path: ReadFile(one.vector, _rows(one.rows)) for path, one in intent.reads.files.items()},
                statistics=intent.reads.statistics,
                app_ids=frozenset(intent.reads.app_ids),
                domains=frozenset(intent.reads.domains),
                every_domain=intent.reads.every_domain,
                unowned_since=intent.reads.unowned_since,
                written_since=intent.reads.written_since,
            ),
            actions=decode_commit(intent.actions.encode(), intent.id) if intent.actions else [],
            commit_info=intent.commit_info,
            txn_id=intent.id,
            level=IsolationLevel(intent.level),
            table=table,
            clock=like.clock,
            row_ids=like.row_ids,
            changes=RowChanges(
                deletes=tuple(_delete(one, intent.id) for one in intent.deletes),
                vectors=intent.vectors,
                row_level=intent.row_level,
                now_ms=intent.now_ms,
            ),
            records_predicates=intent.records_predicates,
            name_of=like.name_of,
        )
    except (DeltaError, ValueError):
        return None


def _delete(one: _Delete, name: str) -> RowDelete:
    (add,) = decode_commit(one.add.encode(), name)
    if not isinstance(add, Add):
        raise InvalidLogError("rows are deleted of what is no file", file=name)
    base = _rows(one.base)
    return RowDelete(add, BitMap64() if isinstance(base, All) else base, _rows(one.rows))


def _text(rows: Rows) -> str | None:
    return None if isinstance(rows, All) else base64.b64encode(rows.serialize()).decode()


def _rows(text: str | None) -> Rows:
    return ALL if text is None else BitMap64.deserialize(base64.b64decode(text))


# --- the names in a version -----------------------------------------------------------------------------------------


class _Member(msgspec.Struct, rename="camel"):
    txn_id: Any = None
    writer: str = ""


class _Info(msgspec.Struct, rename="camel"):
    txn_id: Any = None
    members: list[_Member] = []
    refused: dict[str, Any] = {}
    withdrawn: list[str] = []
    lead_ms: int | None = None
    writer: str = ""


class _Line(msgspec.Struct, rename="camel"):
    commit_info: _Info | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


def names_in(data: bytes) -> tuple[Named, int | None, tuple[str, ...]]:
    """The transactions that a commit file names; the working time of its leader in milliseconds, if it had one; and the
    names of the writers of its members, each empty for one that has none.

    This engine writes commitInfo first; of a commit without it there, no transaction is known.
    """
    try:
        info = _LINE.decode(data[: data.find(b"\n") + 1] or data).commit_info
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        info = None
    if info is None:
        return Named(), None, ("",)
    members = info.members or [_Member(info.txn_id, info.writer)]
    # The version that withdraws a transaction has a name of its own, which is no member's.
    found = tuple(one.txn_id for one in members if isinstance(one.txn_id, str))
    named = Named(members=found, refused=info.refused, withdrawn=frozenset(info.withdrawn))
    return named, info.lead_ms, tuple(one.writer for one in members)
