"""What is known about the protocols that fsspec opens: names, promises, and the options of each as tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from refdelta_storage.base import Capabilities, Store
from refdelta_storage.errors import InvalidOptionError, redact
from refdelta_storage.fsspec_store import NO_PROMISES, FsspecStore
from refdelta_storage.wrappers import ReadOnlyStore

Convert = Callable[[str, Any], Any]


def truth(name: str, value: Any) -> bool:
    """An option that is true or false, however it is written."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise InvalidOptionError(f"option {name!r} is true or false, not {value!r}")


def seconds(name: str, value: Any) -> float:
    """An option that is a time: a number of seconds, or as deltalake writes it, "30s", "500ms", "2m"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", str(value))
    if match is None:
        raise InvalidOptionError(f"option {name!r} is a time such as '30s', not {value!r}")
    return float(match.group(1)) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match.group(2) or "s"]


def _as_is(_name: str, value: Any) -> Any:
    return value


def _etag_only(name: str, value: Any) -> None:
    if str(value).lower() not in ("etag", "create"):
        raise InvalidOptionError(f"option {name!r}: commits are conditional puts here, {value!r} is another way")


def _no_lock(name: str, value: Any) -> None:
    raise InvalidOptionError(
        f"option {name!r}: writers that commit under a lock ({value!r}) do not see conditional puts, and would "
        "overwrite them; every writer of a table has to use the same way"
    )


def _addressing(name: str, value: Any) -> str:
    return "virtual" if truth(name, value) else "path"


def _host(_name: str, value: Any) -> str:
    return re.sub(r"^[a-z]+://", "", str(value)).rstrip("/")


@dataclass(frozen=True, slots=True)
class Option:
    """Where an option goes: ``target`` is a path in the arguments of fsspec's class, empty if it is only checked."""

    names: tuple[str, ...]
    target: tuple[str, ...] = ()
    convert: Convert = _as_is


@dataclass(frozen=True, slots=True)
class Protocol:
    """One file system of fsspec.

    Attributes:
        name: its name in fsspec.
        package: what to install for it.
        capabilities: what it promises when it is opened by :func:`refdelta_storage.open_store`.
        options: deltalake's names, and where they go. The arguments of fsspec's class are taken under their own names.
        defaults: arguments that differ from fsspec's defaults.
        create_options: see :class:`FsspecStore`.
        strict: whether an option that neither knows is refused.
    """

    name: str
    package: str
    capabilities: Capabilities = NO_PROMISES
    options: tuple[Option, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    create_options: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

    def open(self, uri: str, options: Mapping[str, Any]) -> Store:
        """The store under ``uri``; read-only if nothing is promised and nothing told otherwise."""
        _refuse_credentials(uri)
        arguments = dict(options)
        told = arguments.pop("put_if_absent", None)
        capabilities = self.capabilities
        if told is not None:
            capabilities = Capabilities(
                truth("put_if_absent", told), capabilities.list_after, capabilities.durable, capabilities.remote
            )
        cls = self._file_system()
        arguments = {**self._arguments(arguments, cls), **cls._get_kwargs_from_urls(uri)}
        root = str(cls._strip_protocol(uri))
        try:
            fs = cls(**{"use_listings_cache": False, **self.defaults, **arguments})
        except (TypeError, ValueError, KeyError, OSError) as error:
            raise InvalidOptionError(f"cannot open {self.name}: {redact(str(error))}") from None
        store = FsspecStore(fs, root, uri, capabilities, self.create_options)
        if capabilities.put_if_absent:
            return store
        return ReadOnlyStore(
            store,
            f"{self.name} is not known to create an object for one writer only; "
            "if it does, say so with the storage option put_if_absent=true",
        )

    def _file_system(self) -> Any:
        import fsspec

        try:
            return fsspec.get_filesystem_class(self.name)
        except ImportError:
            raise InvalidOptionError(
                f"{self.name}:// needs the package {self.package}, which is not installed"
            ) from None
        except ValueError:
            raise InvalidOptionError(f"no store for {self.name}://") from None

    def _arguments(self, options: Mapping[str, Any], cls: Any) -> dict[str, Any]:
        by_name = {name: option for option in self.options for name in option.names}
        own = set(inspect.signature(cls.__init__).parameters) - {"self", "kwargs", "args", "loop", "asynchronous"}
        arguments: dict[str, Any] = {}
        given: dict[tuple[str, ...], str] = {}
        for name, value in options.items():
            option = by_name.get(name.lower())
            if option is None and self.strict and name not in own and name not in _COMMON:
                known = sorted(own | set(by_name) | {"put_if_absent"})
                raise InvalidOptionError(f"unknown option {name!r} for {self.name}; known: {', '.join(known)}")
            target = (name,) if option is None else option.target
            converted = value if option is None else option.convert(name, value)
            if target:
                _place(arguments, target, converted, name, given)
        return arguments


# What fsspec takes for every file system.
_COMMON = {
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
    "batch_size",
}


def _place(
    arguments: dict[str, Any], target: tuple[str, ...], value: Any, name: str, given: dict[tuple[str, ...], str]
) -> None:
    """Put a value where it belongs; two names for one thing may not differ."""
    *path, last = target
    inner = arguments
    for part in path:
        # A copy: the caller's dictionaries stay as they are.
        inner[part] = dict(inner.get(part) or {})
        inner = inner[part]
    if target in given and inner.get(last) != value:
        raise InvalidOptionError(f"options {given[target]!r} and {name!r} mean the same and differ")
    given[target] = name
    inner[last] = (
        {**inner[last], **value} if isinstance(value, Mapping) and isinstance(inner.get(last), Mapping) else value
    )


def _refuse_credentials(uri: str) -> None:
    authority = uri.partition("://")[2].partition("/")[0]
    userinfo = authority.rpartition("@")[0]
    # After a "?" only: "token=x" may be the name of a folder.
    query = uri.partition("?")[2]
    if ":" in userinfo or redact(query) != query:
        raise InvalidOptionError(
            f"no credentials in a URI, they would be shown with it; use storage options: {redact(uri)}"
        )


def _names(prefixes: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in prefixes)


_AWS = ("aws_", "")
_AZURE = ("azure_storage_", "azure_", "")

S3 = Protocol(
    name="s3",
    package="s3fs",
    capabilities=Capabilities(put_if_absent=True, list_after=False, durable=True, remote=True),
    options=(
        Option(_names(_AWS, "access_key_id"), ("key",)),
        Option(_names(_AWS, "secret_access_key"), ("secret",)),
        Option(_names(_AWS, "session_token", "token"), ("token",)),
        Option(_names(_AWS, "region", "default_region"), ("client_kwargs", "region_name")),
        Option((*_names(_AWS, "endpoint_url", "endpoint"), "aws_endpoint_url_s3"), ("endpoint_url",)),
        Option(_names(_AWS, "profile"), ("profile",)),
        Option(_names(_AWS, "skip_signature"), ("anon",), truth),
        Option(_names(_AWS, "virtual_hosted_style_request"), ("config_kwargs", "s3", "addressing_style"), _addressing),
        Option(("timeout",), ("config_kwargs", "read_timeout"), seconds),
        Option(("connect_timeout",), ("config_kwargs", "connect_timeout"), seconds),
        Option(_names(_AWS, "allow_http"), (), truth),  # a permission, which fsspec does not ask for
        Option(_names(_AWS, "conditional_put", "copy_if_not_exists"), (), _etag_only),
        Option(_names(_AWS, "s3_locking_provider", "s3_dynamo_db_table_name", "delta_dynamo_table_name"), (), _no_lock),
        Option(_names(_AWS, "s3_allow_unsafe_rename"), (), truth),  # there is no rename here
    ),
    # One PUT whatever the size: the condition of a multi-part upload comes with its completion.
    create_options={"chunksize": 2**31},
    strict=True,
)

AZURE = Protocol(
    name="abfs",
    package="adlfs",
    capabilities=Capabilities(put_if_absent=True, list_after=False, durable=True, remote=True),
    options=(
        Option(_names(_AZURE, "account_name"), ("account_name",)),
        Option(_names(_AZURE, "account_key", "access_key", "master_key"), ("account_key",)),
        Option(_names(_AZURE, "sas_token", "sas_key"), ("sas_token",)),
        Option(_names(_AZURE, "client_id"), ("client_id",)),
        Option(_names(_AZURE, "client_secret"), ("client_secret",)),
        Option(_names(_AZURE, "tenant_id", "authority_id"), ("tenant_id",)),
        Option(_names(_AZURE, "connection_string"), ("connection_string",)),
        Option(_names(_AZURE, "endpoint", "account_host"), ("account_host",), _host),
        Option(_names(_AZURE, "skip_signature", "anon"), ("anon",), truth),
        Option(("timeout",), ("read_timeout",), seconds),
        Option(("connect_timeout",), ("connection_timeout",), seconds),
        Option(_names(_AZURE, "allow_http"), (), truth),
    ),
    strict=True,
)

PROTOCOLS: dict[str, Protocol] = {
    "s3": S3,
    "s3a": S3,
    "abfs": AZURE,
    "abfss": AZURE,
    "az": AZURE,
    # Right by its documentation, and promised here once the contract's test has run against it.
    "gs": Protocol(name="gs", package="gcsfs"),
    "gcs": Protocol(name="gcs", package="gcsfs"),
}


def other(scheme: str) -> Protocol:
    """A protocol that only fsspec knows: what it opens can be read."""
    return Protocol(name=scheme, package=f"with fsspec's {scheme} file system")
