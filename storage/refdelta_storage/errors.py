"""The errors of stores. A store that raises any other error has a bug."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote


class StorageError(OSError):
    """The root: the store refused or failed. The message never carries credentials."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """No object has this key."""


class ObjectExistsError(StorageError, FileExistsError):
    """An object has this key already."""


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

    ``errno`` is kept, so that a caller can distinguish a full disk from a missing permission. ``reason`` replaces the
    message of ``cause``; the result is one line.
    """
    reason = reason or getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    reason = next(filter(None, map(str.strip, str(reason).splitlines())), type(cause).__name__)
    error = StorageError(f"cannot {action} {key!r} in {uri}: {redact(reason, secrets)}")
    error.errno = getattr(cause, "errno", None)
    return error


# Secrets in messages of client libraries and servers: signed URLs, connection strings, headers, XML and JSON.
_SIGNED = re.compile(
    r"(?i)\b(sig|signature|sas|credential|x-amz-signature|x-amz-credential|x-amz-security-token|awsaccesskeyid"
    r"|accountkey|account_key|sharedaccesssignature|access_key|secret_key|secret|token|session_token|password|passwd"
    r"|client_secret)(=|%3d|[\"']?\s*:\s*[\"']?|>)(?!\*\*\*)[^&;,\s'\"<>]+"
)
_HEADER = re.compile(r"(?i)\b(bearer|basic|sharedkey|sharedkeylite|x-amz-security-token:)(\s+)(?!\*\*\*)[^\s,;'\"<>]+")
_AWS_ID = re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}\b")
# A name and a password before an @, which may be escaped; a password may hold a slash. Neither the port of a host nor
# the colons of an ARN are the beginning of one.
_PORT = r"(?:[\w.-]*@)?(?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9a-f:]+\]):\d+(?:[/?\s'\"]|$)"
_LOGIN = re.compile(rf"(?i)://(?!arn:|{_PORT})[^/\s@'\"]*(?::|%3a)[^\s'\"]*(?:@|%40)")


def holds_login(uri: str) -> bool:
    """Whether a URI holds a name and a password."""
    return _LOGIN.search(uri) is not None


def redact(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """``text`` without the given secrets, in whatever way they are escaped, and without what looks like a credential:
    a password in a URL, a signature, a token, the id of a key.
    """
    # The longest first: one may be a part of another.
    for form in sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, "***")
    text = _SIGNED.sub(lambda match: f"{match.group(1)}{match.group(2)}***", text)
    text = _HEADER.sub(lambda match: f"{match.group(1)}{match.group(2)}***", text)
    return _LOGIN.sub("://***@", _AWS_ID.sub("***", text))


def _forms(secret: str) -> set[str]:
    """A secret, also in the encodings of URLs, XML, JSON and Python's ``repr``."""
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), html.escape(secret)}
    forms |= {json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return {form for form in forms if form}


_SECRET_WORDS = ("secret", "token", "password", "sas", "key", "credential", "connection_string", "auth")
_PARTS = re.compile(r"(?i)(?:AccountKey|SharedAccessSignature|sig|skoid|AccessToken)=([^;&]+)")


def secrets_of(options: Mapping[str, Any]) -> frozenset[str]:
    """The values of options that may be secret, nested ones and parts of connection strings too."""
    found: set[str] = set()
    for name, value in options.items():
        if isinstance(value, Mapping):
            found |= secrets_of(value)
        elif isinstance(value, str) and len(value) > 3 and any(word in str(name).lower() for word in _SECRET_WORDS):
            found |= {value, value.lstrip("?"), *_PARTS.findall(value), *map(unquote, _PARTS.findall(value))}
    return frozenset(found)
