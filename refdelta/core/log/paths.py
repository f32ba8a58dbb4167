"""The names of log files, and the paths of data files in actions (PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log
Compaction Files", "Version Checksum File", "Add File and Remove File").

Keys are those of a store: relative to the table's folder, ``/``-separated, decoded. A path in an action is a
percent-encoded URI reference. Only :func:`data_key` turns it into a key, and refuses paths outside of the table: no log
can make this engine read, write or delete an object of another folder. SECURITY.md has the policy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import quote, unquote, unquote_to_bytes

import msgspec

from refdelta.core.errors import InvalidLogError, UnsafePathError

LOG: Final = "_delta_log"
SIDECARS: Final = f"{LOG}/_sidecars"
# Versions have 20 digits and are below 2**63, so all versioned log files have this prefix, and no sidecar has it.
VERSIONED: Final = f"{LOG}/0"
MAX_VERSION: Final = 2**63 - 1

LogKind = Literal["commit", "classic", "multipart", "uuid", "compacted", "checksum", "last_checkpoint"]


class LogName(msgspec.Struct, frozen=True):
    """The parsed name of a log file.

    Attributes:
        kind: the kind of file; ``classic``, ``multipart`` and ``uuid`` are checkpoints.
        version: the table's version; the first one of a compacted file; -1 for ``_last_checkpoint``.
        hi: the last version of a compacted file, else the version.
        part: the number of this part of a multi-part checkpoint, from 1.
        parts: how many parts the multi-part checkpoint has.
        format: ``json`` or ``parquet``.
    """

    kind: LogKind
    version: int
    hi: int
    part: int = 1
    parts: int = 1
    format: Literal["json", "parquet"] = "json"

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is a checkpoint or a part of one."""
        return self.kind in ("classic", "multipart", "uuid")


# The specification's names are fixed in width, so that a listing is in the order of versions; others are not log files.
_NAME = re.compile(
    r"""(?P<version>[0-9]{20})\.(?:
          (?P<commit>json)
        | (?P<checksum>crc)
        | (?P<hi>[0-9]{20})\.compacted\.json
        | checkpoint\.(?:
              (?P<classic>parquet)
            | (?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet
            | [0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}\.(?P<uuid>json|parquet)
          )
    )""",
    re.VERBOSE,
)


def commit_key(version: int) -> str:
    """The key of a commit."""
    return f"{LOG}/{version:020d}.json"


def checksum_key(version: int) -> str:
    """The key of a version checksum."""
    return f"{LOG}/{version:020d}.crc"


def checkpoint_key(version: int) -> str:
    """The key of a checkpoint under its classic name."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def uuid_checkpoint_key(version: int, uuid: str, form: Literal["json", "parquet"]) -> str:
    """The key of a checkpoint of the V2 specification with a name of its own (PROTOCOL.md, "UUID-named checkpoint")."""
    return f"{LOG}/{version:020d}.checkpoint.{uuid}.{form}"


def compacted_key(lo: int, hi: int) -> str:
    """The key of a log compaction file over the versions ``lo`` to ``hi``, both included."""
    return f"{LOG}/{lo:020d}.{hi:020d}.compacted.json"


def last_checkpoint_key() -> str:
    """The key of the hint at the newest checkpoint."""
    return f"{LOG}/_last_checkpoint"


def parse_log_name(name: str) -> LogName | None:
    """Read a key, or a name within ``_delta_log``.

    Returns:
        None for all other files: in subfolders, temporary files, other names, versions above 2**63 - 1, parts of a
        checkpoint with impossible numbers.
    """
    name = name.removeprefix(f"{LOG}/")
    if name == "_last_checkpoint":
        return LogName("last_checkpoint", -1, -1)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    version = int(match["version"])
    hi = int(match["hi"]) if match["hi"] else version
    if max(version, hi) > MAX_VERSION:
        return None
    return _log_name(match, version, hi)


def _log_name(match: re.Match[str], version: int, hi: int) -> LogName | None:
    if match["commit"]:
        return LogName("commit", version, hi)
    if match["checksum"]:
        return LogName("checksum", version, hi)
    if match["hi"]:
        return LogName("compacted", version, hi) if hi > version else None
    if match["classic"]:
        return LogName("classic", version, hi, format="parquet")
    if match["uuid"]:
        return LogName("uuid", version, hi, format="json" if match["uuid"] == "json" else "parquet")
    part, parts = int(match["part"]), int(match["parts"])
    return LogName("multipart", version, hi, part, parts, "parquet") if 1 <= part <= parts else None


# --- paths in actions --------------------------------------------------------------------------------------------

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# The characters that need no encoding in the path of a URI (RFC 2396, `pchar`), without the colon, which would make the
# first segment a scheme.
_URI_SAFE: Final = "/-_.!~*'()@&=+$,"
SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "gcs": "gs"}
"""Schemes by which engines name one store, with the one that stands for it in comparisons."""


ELSEWHERE: Final = "\0"
"""The first character of a key in another folder; the number of the folder in :attr:`Place.others`, a slash and the key
there follow. No path in a log can contain it.
"""


class Place(str):
    """The URI of a table, with the other folders of which its log may name objects, by permission of the caller.

    Attributes:
        others: the URIs of these folders.
    """

    __slots__ = ("others",)
    others: tuple[str, ...]

    def __new__(cls, uri: str, others: Sequence[str] = ()) -> Place:  # noqa: D102, PYI034 - a str is made here
        made = super().__new__(cls, uri)
        made.others = tuple(others)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[str, ...]]:  # type: ignore[override]
        return str(self), self.others


def encode_path(key: str) -> str:
    """A key as an action writes it: a relative, percent-encoded URI reference (RFC 2396)."""
    return quote(key, safe=_URI_SAFE)


def data_key(raw_path: str, table_uri: str, *, file: str | None = None) -> str:
    """The key for a path of an ``add``, ``remove``, ``cdc`` or deletion vector.

    Args:
        raw_path: the path in the log, relative or absolute, percent-encoded.
        table_uri: the URI of the table; a plain path is taken as ``file:``. With a :class:`Place`, an absolute path may
            lead into one of its other folders too.
        file: the log file, for the message.

    Raises:
        UnsafePathError: the path leaves the table's folder, names another store, or names nothing.
        InvalidLogError: the percent-encoding is broken.
    """
    if not raw_path.startswith("/") and _SCHEME.match(raw_path) is None:
        return _clean(_decode(raw_path, file), raw_path, file)
    place, path = _split(raw_path)
    if raw_path.startswith("/") and not raw_path.startswith("//"):
        place = _split(table_uri)[0]  # such a path names the table's own store
    path = _decode(path, file)
    inside = _inside(place, path, table_uri)
    if inside is not None:
        return _clean(inside, raw_path, file)
    others = table_uri.others if isinstance(table_uri, Place) else ()
    for number, other in enumerate(others):
        inside = _inside(place, path, other)
        if inside is not None:
            return f"{ELSEWHERE}{number}/{_clean(inside, raw_path, file)}"
    raise UnsafePathError(
        f"the path {raw_path!r} is outside the table at {table_uri}, as those of a shallow clone are; only files in "
        "the table's own folder are read, and in folders that DeltaTable(..., outside=[...]) names",
        file=file,
    )


def _inside(place: str, path: str, folder: str) -> str | None:
    """An absolute path relative to a folder, or None if it is outside."""
    there, base = _split(folder)
    if "://" in folder:
        base = _decode(base, None)
    base = base.rstrip("/") + "/"
    return path[len(base) :] if place == there and path.startswith(base) else None


def absolute_uri(raw_path: str, table_uri: str) -> str:
    """The absolute URI of a path in an action; an absolute one is returned unchanged.

    A local one is ``file:/a``, as in Hadoop: delta-spark compares URIs as strings when it adds a deletion vector.
    """
    if _SCHEME.match(raw_path):
        return raw_path
    if raw_path.startswith("/"):
        uri = f"{_split(table_uri)[0]}{raw_path}"
    else:
        base = str(table_uri) if "://" in table_uri else f"file://{encode_path(str(table_uri))}"
        uri = f"{base.rstrip('/')}/{raw_path}"
    return f"file:/{uri.removeprefix('file:///')}" if uri.startswith("file:///") else uri


ODD_PATH: Final = r"%|^/|^[A-Za-z][A-Za-z0-9+.\-]*:|//|\./"
"""Matches the paths that :func:`same_path` may change."""


def same_path(raw_path: str) -> str:
    """The normalized form of a path in the log, equal for all spellings of one URI.

    Engines differ in the characters that they percent-encode, in the scheme of local absolute paths (``/a``,
    ``file:/a``, ``file:///a``), and in empty and ``.`` segments. As in delta-spark, the relative and the absolute path
    of one file stay different.
    """
    place, path = "", unquote(raw_path)
    if raw_path.startswith("/") or _SCHEME.match(raw_path):
        place, path = _split(path)
    if "//" in path or "./" in path:
        root = "/" if path.startswith("/") else ""
        path = root + "/".join(segment for segment in path.split("/") if segment not in ("", "."))
    return f"{place}{path}"


def same_paths(raw_paths: list[str]) -> list[str]:
    """:func:`same_path` of each. Most are in that form already, which is checked for all of them at once."""
    together = "\n".join(raw_paths)
    # None begins with "/" if each is greater than that character.
    odd = any(mark in together for mark in ("%", ":", "//", "./")) or min(raw_paths, default="0") < "0"
    return list(map(same_path, raw_paths)) if odd else raw_paths


def sidecar_key(path: str, table_uri: str = "") -> str:
    """The key of a sidecar (PROTOCOL.md, "Sidecar File Information"): a name in ``_sidecars``, or an absolute URI.

    Raises:
        UnsafePathError: it is not in the table's ``_delta_log/_sidecars``.
    """
    if _SCHEME.match(path) or path.startswith("/"):
        key = data_key(path, table_uri)
        if not key.startswith(f"{SIDECARS}/"):
            raise UnsafePathError(f"the sidecar {path!r} is not in {SIDECARS}")
        return key
    return f"{SIDECARS}/{_clean(_decode(path, None), path, None)}"


def _split(uri: str) -> tuple[str, str]:
    """Scheme and authority as one comparable string, and the path unchanged; a plain path is a local one."""
    match = _SCHEME.match(uri)
    scheme, rest = (match[1].lower(), uri[match.end() :]) if match else ("file", uri)
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if scheme == "file" and authority == "localhost":
        authority = ""
    return f"{SAME_STORE.get(scheme, scheme)}://{authority.lower()}", rest


def _decode(path: str, file: str | None) -> str:
    if "%" not in path:
        return path
    if _BAD_ESCAPE.search(path):
        raise InvalidLogError(f"the path {path!r} is not percent-encoded as a URI is", file=file)
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidLogError(f"the path {path!r} does not decode to UTF-8", file=file) from None


def _clean(key: str, raw: str, file: str | None) -> str:
    """The key without empty and ``.`` segments. ``..`` may leave the folder: it is refused, not resolved.

    Refuses also keys that are absolute after decoding, and ``..`` between backslashes, which some systems and services
    treat as slashes.
    """
    # Nearly every path of a log takes this way out.
    if (
        key
        and "//" not in key
        and "\0" not in key
        and "./" not in key
        and "\\" not in key
        and key[0] not in "/."
        and key[-1] not in "/."
    ):
        return key
    segments = [segment for segment in key.split("/") if segment not in ("", ".")]
    if not segments or key[0] == "/" or "\0" in key or ".." in key.replace("\\", "/").split("/"):
        raise UnsafePathError(f"the path {raw!r} does not name a file inside the table", file=file)
    return "/".join(segments)
