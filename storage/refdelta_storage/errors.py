"""The errors of stores. A store that raises any other error has a bug."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote


class StorageError(OSError):
    """The root: the store refused or failed. The message never carries credentials, and is safe to print: control
    characters in the words of a server are escaped.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


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
# A name with the colon of a password, which are before an @ and may be escaped. Neither the port of a host nor the
# colons of an ARN are such a colon. A name ends at a slash, so that two searches never read the same characters, and
# the time is linear; a password may hold slashes, and ends at the last @ of its word.
_PORT = r"(?:[\w.-]*@)?(?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9a-f:]+\]):\d+(?:[/?]|$)"
_NAME = re.compile(rf"(?i)://(?!arn:|{_PORT})[^/@]*?(?::|%3a)")
_AT = re.compile(r"(?i)@|%40")
_WORD, _BETWEEN = re.compile(r"[^\s'\"]+"), re.compile(r"[\s'\"]")

MOST_SHOWN = 4_000
"""Characters of the words of a server or a library that are looked through and shown; the rest is counted."""


def holds_login(uri: str) -> bool:
    """Whether a URI holds a name and a password."""
    return _without_logins(uri) != uri


def holds_credential(text: str) -> bool:
    """True if a string holds a credential, by its looks: a password in a URL, a signature, a token, the id of a key."""
    return _without_credentials(text) != text


def redact(text: str, secrets: frozenset[str] = frozenset(), most: int = MOST_SHOWN) -> str:
    """``text`` without the given secrets, in whatever way they are escaped, and without what looks like a credential:
    a password in a URL, a signature, a token, the id of a key.

    Args:
        text: words of a server, a library or a caller.
        secrets: strings that must not be shown.
        most: the characters that are kept. The rest is cut off at the end of a word, so that no part of a credential
            is left, and before credentials are looked for, so that their number costs nothing.
    """
    # The longest first: one may be a part of another.
    for form in sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, "***")
    kept = _cut(text, most)
    return _without_credentials(kept) + (f"... ({len(text) - len(kept)} characters left out)" if kept != text else "")


def _cut(text: str, most: int) -> str:
    """At most the first ``most`` characters, without a word that goes on: a half of a credential is none to see."""
    if len(text) <= most:
        return text
    ends = [found.start() for found in _BETWEEN.finditer(text, 0, most + 1)]
    return text[: ends[-1]] if ends else ""


def _without_credentials(text: str) -> str:
    text = _SIGNED.sub(lambda match: f"{match.group(1)}{match.group(2)}***", text)
    text = _HEADER.sub(lambda match: f"{match.group(1)}{match.group(2)}***", text)
    return _without_logins(_AWS_ID.sub("***", text))


def _without_logins(text: str) -> str:
    return _WORD.sub(lambda word: _without_login(word[0]), text) if "://" in text and _AT.search(text) else text


def _without_login(word: str) -> str:
    """A word without its name and password: from the first name of a login to the last @."""
    ends = [found.span() for found in _AT.finditer(word)]
    name = _NAME.search(word) if ends else None
    return word if name is None or name.end() > ends[-1][0] else f"{word[: name.start()]}://***@{word[ends[-1][1] :]}"


def _forms(secret: str) -> set[str]:
    """A secret, also in the encodings of URLs, XML, JSON and Python's ``repr``."""
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), html.escape(secret)}
    forms |= {json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return {form for form in forms if form}


_SECRET_WORDS = ("secret", "token", "password", "sas", "key", "credential", "connection_string", "auth")
# Names that gcsfs has for ways to log in, given in place of a token.
_WAYS = {"anon", "browser", "cache", "cloud", "google_default"}
_PARTS = re.compile(r"(?i)(?:AccountKey|SharedAccessSignature|sig|skoid|AccessToken)=([^;&]+)")


def _is_secret(name: str, value: str) -> bool:
    return value not in _WAYS and any(word in name.lower() for word in _SECRET_WORDS)


def secrets_of(options: Mapping[str, Any]) -> frozenset[str]:
    """The values of options that may be secret, nested ones and parts of connection strings too."""
    found: set[str] = set()
    for name, given in options.items():
        value = getattr(given, "token", given)  # of a credential that holds one
        if isinstance(value, Mapping):
            found |= secrets_of(value)
        elif isinstance(value, str) and len(value) > 3 and _is_secret(str(name), value):
            found |= {value, value.lstrip("?"), *_PARTS.findall(value), *map(unquote, _PARTS.findall(value))}
    return frozenset(found)


def class_names(error: BaseException) -> set[str]:
    """The names of an error's class and of its bases: those of a client library are known before it is imported."""
    return {cls.__name__ for cls in type(error).__mro__}
