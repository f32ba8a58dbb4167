"""What a store raises. Anything else that leaves a store is a bug of that store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class StorageError(OSError):
    """The root: the store refused or failed. The message never carries credentials."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """No object has this key."""


class InvalidKeyError(StorageError, ValueError):
    """A key that is not a relative, normalised, ``/``-separated path."""


class InvalidOptionError(StorageError, ValueError):
    """A storage option, or a URI, that no store understands."""


class ReadOnlyStoreError(StorageError, PermissionError):
    """A write to a store that was opened for reading."""


def not_found(key: str, uri: str) -> ObjectNotFoundError:
    """The error for a key that has no object."""
    return ObjectNotFoundError(f"no object {key!r} in {uri}")


def failure(
    action: str,
    key: str,
    uri: str,
    cause: BaseException,
    secrets: frozenset[str] = frozenset(),
    reason: str | None = None,
) -> StorageError:
    """A ``StorageError`` for what the system or a client library said, with the key named and secrets taken out.

    ``errno`` is kept, so that a caller can tell a full disk from a forbidden folder. ``reason`` says it in other words
    than ``cause`` does; in any case it is one line.
    """
    reason = reason or getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    reason = next(filter(None, map(str.strip, str(reason).splitlines())), type(cause).__name__)
    error = StorageError(f"cannot {action} {key!r} in {uri}: {redact(reason, secrets)}")
    error.errno = getattr(cause, "errno", None)
    return error


# Signed URLs and connection strings, as client libraries put them into their messages.
_SIGNED = re.compile(
    r"(?i)\b(sig|signature|sas|x-amz-signature|x-amz-credential|x-amz-security-token|awsaccesskeyid|accountkey"
    r"|sharedaccesssignature|token|secret|password)=[^&;\s'\"]+"
)
_USERINFO = re.compile(r"://[^/\s@'\"]+:[^/\s@'\"]*@")


def redact(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """``text`` without the given secrets and without anything that looks like a signature or a password in a URL."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return _USERINFO.sub("://***@", _SIGNED.sub(lambda match: f"{match.group(1)}=***", text))


_SECRET_WORDS = ("secret", "token", "password", "sas", "key", "credential", "connection_string")
_PARTS = re.compile(r"(?i)(?:AccountKey|SharedAccessSignature|sig)=([^;&]+)")


def secrets_of(options: Mapping[str, Any]) -> frozenset[str]:
    """The values of options that may be secret, nested ones and parts of connection strings too."""
    found: set[str] = set()
    for name, value in options.items():
        if isinstance(value, Mapping):
            found |= secrets_of(value)
        elif isinstance(value, str) and len(value) > 3 and any(word in name.lower() for word in _SECRET_WORDS):
            found |= {value, *_PARTS.findall(value)}
    return frozenset(found)
