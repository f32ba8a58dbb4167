"""The URI schemes that fsspec opens: names, guarantees, and the options of each as tables."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from refdelta_storage.azure import PROMISES as AZURE_PROMISES
from refdelta_storage.azure import AzureCli, AzureStore, BearerToken
from refdelta_storage.base import Capabilities, Store
from refdelta_storage.clients import PARALLEL, Client, Patience
from refdelta_storage.errors import InvalidOptionError, holds_credential, holds_login, redact
from refdelta_storage.fsspec_store import FsspecStore
from refdelta_storage.gcs import PROMISES as GCS_PROMISES
from refdelta_storage.gcs import GcsStore
from refdelta_storage.http import HttpStore
from refdelta_storage.options import truth, unknown_option
from refdelta_storage.probe import Probed
from refdelta_storage.s3 import PROMISES as S3_PROMISES
from refdelta_storage.s3 import S3Store, is_amazon
from refdelta_storage.wrappers import ReadOnlyStore

HOPES = Capabilities(put_if_absent=True, list_after=False, durable=True, remote=True)
"""The guarantees that an unknown file system may turn out to have."""

Convert = Callable[[str, Any], Any]


_LONGEST_SECONDS = 365 * 86_400.0
"""A year: sockets and threads refuse to wait for times that their numbers do not hold."""


def seconds(name: str, value: Any) -> float:
    """An option that is a time: a number of seconds, or as deltalake writes it, "30s", "500ms", "2m"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", str(value))
    if match is None:
        raise InvalidOptionError(f"option {name!r} is a time such as '30s', not {value!r}")
    found = float(match.group(1)) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match.group(2) or "s"]
    return min(found, _LONGEST_SECONDS)


def _as_is(_name: str, value: Any) -> Any:
    return value


def _address(_name: str, value: Any) -> str:
    return str(value).rstrip("/")


def _nobody(name: str, value: Any) -> str | None:
    """No login: gcsfs has a name for it among the tokens."""
    return "anon" if truth(name, value) else None


def _bearer(_name: str, value: Any) -> BearerToken:
    return BearerToken(str(value))


def _azure_cli(name: str, value: Any) -> AzureCli | None:
    return AzureCli() if truth(name, value) else None


def _account(name: str, value: Any) -> dict[str, Any]:
    """The content of a file of Google's credentials, which gcsfs would send to Google as a token if it is not there."""
    try:
        text = Path(str(value)).expanduser().read_text()
    except (OSError, UnicodeDecodeError):
        raise InvalidOptionError(f"option {name!r} names a file that cannot be read") from None
    return _account_key(name, text)


def _account_key(name: str, value: Any) -> dict[str, Any]:
    """Google's credentials, as the JSON of their file has them."""
    try:
        found = json.loads(value) if isinstance(value, str) else dict(value)
        kind = found.get("type", "service_account")
    except (ValueError, TypeError, AttributeError):
        raise InvalidOptionError(f"option {name!r} is the JSON of a service account") from None
    if kind not in ("service_account", "authorized_user"):
        raise InvalidOptionError(
            f"option {name!r} has credentials of the type {kind!r}: these are found without the option, by the "
            "environment variable GOOGLE_APPLICATION_CREDENTIALS"
        )
    account: dict[str, Any] = found
    return account


def _etag_only(name: str, value: Any) -> None:
    if str(value).lower() not in ("etag", "create"):
        raise InvalidOptionError(f"option {name!r}: commits are conditional puts here, {value!r} is another way")


def _no_lock(name: str, value: Any) -> None:
    raise InvalidOptionError(
        f"option {name!r}: writers that commit under a lock ({value!r}) do not see conditional puts, and would "
        "overwrite them; every writer of a table has to use the same way"
    )


def _checked_certificates(name: str, value: Any) -> None:
    if truth(name, value):
        raise InvalidOptionError(f"option {name!r}: the certificate of a server is always checked")


def _addressing(name: str, value: Any) -> str:
    return "virtual" if truth(name, value) else "path"


def _count(name: str, value: Any) -> int:
    try:
        return max(0, int(str(value)))
    except ValueError:
        raise InvalidOptionError(f"option {name!r} is a number, not {value!r}") from None


def _unchanged(arguments: dict[str, Any], _patience: Patience) -> dict[str, Any]:
    return arguments


def _nothing(_uri: str) -> dict[str, Any]:
    return {}


# Targets of options that are not for fsspec.
_PATIENCE, _HTTP, _FABRIC = "refdelta patience", "refdelta allow_http", "refdelta use_fabric_endpoint"

Make = Callable[[Client, str, str, Patience, bool | None], Store]


@dataclass(frozen=True, slots=True)
class Option:
    """An option: ``target`` is its path in the arguments of fsspec's class, empty if it is only checked."""

    names: tuple[str, ...]
    target: tuple[str, ...] = ()
    convert: Convert = _as_is


@dataclass(frozen=True, slots=True)
class UriScheme:
    """One file system of fsspec.

    Attributes:
        name: its name in fsspec.
        package: what to install for it.
        extra: the extra of refdelta that installs the package, if there is one.
        make: makes the store of a client, a URI, the path that fsspec has for it, a patience, and what the user says
            about put-if-absent (None: nothing).
        options: deltalake's names, and where they go. The arguments of fsspec's class are taken under their own names.
        in_uri: the arguments that a URI names.
        finish: completes the arguments of fsspec's class.
        environment: variables that count as options, the first of those that mean the same. The client libraries read
            more of them, such as credentials, by themselves.
        strict: whether an option that neither knows is refused.
        service: what obstore calls the service, None if it does not know it.
        promises: the guarantees of the service by obstore.
    """

    name: str
    package: str
    make: Make
    options: tuple[Option, ...] = ()
    in_uri: Callable[[str], dict[str, Any]] = _nothing
    finish: Callable[[dict[str, Any], Patience], dict[str, Any]] = _unchanged
    environment: tuple[str, ...] = ()
    strict: bool = False
    extra: str | None = None
    service: str | None = None
    promises: Capabilities = HOPES

    def open(self, uri: str, options: Mapping[str, Any]) -> Store:
        """The store under ``uri``. No request is made."""
        _refuse_credentials(uri)
        given = dict(options)
        put_if_absent = given.pop("put_if_absent", None)
        told = None if put_if_absent is None else truth("put_if_absent", put_if_absent)
        if self._by_obstore(given.pop("client", None)):
            return self._open_by_obstore(uri, given, told)
        cls = self._file_system()
        own = _parameters(cls) - {"self", "kwargs", "args", "loop", "asynchronous"}
        arguments, patience, permitted = self._understood(uri, given, own, strict=self.strict)
        plain = f"{self.name}://{uri.partition('://')[2]}"  # fsspec's class knows fewer schemes
        arguments = self.finish({**arguments, **cls._get_kwargs_from_urls(plain)}, patience)
        if permitted is False:
            _refuse_http(arguments)
        client = Client(self.name, arguments)
        try:
            client.file_system()
        except Exception as error:  # noqa: BLE001 - client libraries raise anything
            raise InvalidOptionError(f"cannot open {self.name}: {redact(str(error), client.secrets)}") from None
        root = str(cls._strip_protocol(plain))
        return self.make(client, uri, root, patience, told)

    def _by_obstore(self, client: Any) -> bool:
        """Whether obstore is the client: by the option, or where it alone is installed."""
        if client not in (None, "fsspec", "obstore"):
            raise InvalidOptionError(f"option 'client' is 'fsspec' or 'obstore', not {client!r}")
        if client == "obstore" and self.service is None:
            raise InvalidOptionError(
                f"option 'client': obstore is for s3://, abfss:// and gs://, not for {self.name}://"
            )
        if client == "obstore" and not _is_installed("obstore"):
            raise InvalidOptionError(
                "the option client='obstore' needs the package obstore, which is not installed: "
                "pip install 'refdelta[obstore]'"
            )
        alone = self.service is not None and not _is_installed(self.package) and _is_installed("obstore")
        return client == "obstore" or (client is None and alone)

    def _open_by_obstore(self, uri: str, given: dict[str, Any], told: bool | None) -> Store:
        from refdelta_storage.obstore_store import FSSPEC_NAMES, ObstoreClient, ObstoreStore, checked_client, config_of

        service = self.service or ""
        own = FSSPEC_NAMES[service]
        arguments, patience, permitted = self._understood(uri, given, own, strict=False)
        if service == "Azure":
            _check_connection_string(arguments)
        if service == "GCS":
            arguments = self.finish(arguments, patience)
        if permitted is False:
            _refuse_http(arguments)
        bucket, _, path = _place_in(uri).partition("/")
        client = ObstoreClient(service, bucket, config_of(service, arguments), patience)
        checked_client(client, self.name, lambda name: self._unknown(name, own))
        store = ObstoreStore(cast("Any", client), uri, bucket, path, self.promises, patience)
        return _trusted(store, told, client.name, int(service == "S3"), ObstoreStore.is_amazon)

    def _understood(
        self, uri: str, given: dict[str, Any], own: set[str], *, strict: bool
    ) -> tuple[dict[str, Any], Patience, bool | None]:
        """The arguments of fsspec's class, how long to wait, and whether http is permitted (None: nothing is said)."""
        arguments = self._arguments({**self._from_environment(given), **given}, own, strict=strict)
        arguments = _with_named(arguments, self.in_uri(uri))
        if arguments.pop(_FABRIC, False) and "account_host" not in arguments and arguments.get("account_name"):
            arguments["account_host"] = f"{arguments['account_name']}.blob.fabric.microsoft.com"
        patience = Patience(**arguments.pop(_PATIENCE, {}))
        return arguments, patience, arguments.pop(_HTTP, None)

    def _from_environment(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The options from environment variables that are not given by any of their names."""
        by_name = {name: option for option in self.options for name in option.names}
        targets = {by_name[name.lower()].target for name in given if name.lower() in by_name}
        # Arguments of the client within an option, such as client_kwargs={"endpoint_url": ...}, are given as well.
        inner = {name for value in given.values() if isinstance(value, Mapping) for name in value}
        found: dict[tuple[str, ...], tuple[str, str]] = {}
        for variable in self.environment:
            target, value = by_name[variable.lower()].target, os.environ.get(variable)
            if value and target not in targets and target[-1] not in {*given, *inner}:
                found.setdefault(target, (variable, value))
        return dict(found.values())

    def _file_system(self) -> Any:
        import fsspec

        try:
            return fsspec.get_filesystem_class(self.name)
        except ImportError:
            how = f": pip install 'refdelta[{self.extra}]'" if self.extra else ""
            raise InvalidOptionError(
                f"{self.name}:// needs the package {self.package}, which is not installed{how}"
            ) from None
        except ValueError:
            raise InvalidOptionError(f"no store for {self.name}://") from None

    def _unknown(self, name: str, own: set[str]) -> InvalidOptionError:
        names = {name for option in self.options for name in option.names}
        return unknown_option(
            name, sorted(own | names | {"put_if_absent", *(["client"] if self.service else [])}), self.name
        )

    def _arguments(self, options: Mapping[str, Any], own: set[str], *, strict: bool) -> dict[str, Any]:
        by_name = {name: option for option in self.options for name in option.names}
        arguments: dict[str, Any] = {}
        given: dict[tuple[str, ...], str] = {}
        for name, value in options.items():
            option = by_name.get(name.lower())
            if option is None and strict and name not in own and name not in _COMMON:
                raise self._unknown(name, own)
            target = (name,) if option is None else option.target
            converted = value if option is None else option.convert(name, value)
            if target:
                _place(arguments, target, converted, name, given)
        return arguments


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ValueError, ImportError):  # what has its name has no spec
        return False


def _place_in(uri: str) -> str:
    """The bucket or container of a URI, and the path in it."""
    netloc, _, path = uri.partition("://")[2].partition("/")
    return f"{netloc.partition('@')[0]}/{path}"


def _parameters(cls: Any) -> set[str]:
    """The arguments of a class, and of those of its own package that it derives from."""
    package = cls.__module__.partition(".")[0]
    return {
        name
        for one in cls.__mro__
        if one.__module__.partition(".")[0] == package
        for name in inspect.signature(one.__init__).parameters
    }


# The options of every file system of fsspec.
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
        # A copy, so that the caller's dictionaries do not change.
        inner[part] = dict(inner.get(part) or {})
        inner = inner[part]
    if target in given and inner.get(last) != value:
        raise InvalidOptionError(f"options {given[target]!r} and {name!r} mean the same and differ")
    given[target] = name
    inner[last] = (
        {**inner[last], **value} if isinstance(value, Mapping) and isinstance(inner.get(last), Mapping) else value
    )


def _with_named(arguments: dict[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with those that the URI names. Another host may be given, such as that of an emulator."""
    for name in named.keys() & arguments.keys() - {"account_host"}:
        if arguments[name] != named[name]:
            raise InvalidOptionError(
                f"the URI names the {name.replace('_', ' ')} {named[name]!r}, and the option {name!r} "
                f"{arguments[name]!r}"
            )
    return {**named, **arguments}


def _refuse_http(arguments: Mapping[str, Any]) -> None:
    """The URL says http, which is permission enough, unless the user has said that it is not."""
    texts = (arguments.get("endpoint_url"), arguments.get("connection_string"))
    for text in filter(None, texts):
        if re.search(r"(?i)\bhttp(://|;|$)", str(text)):
            raise InvalidOptionError("the endpoint is http, and the option allow_http is false")


def _refuse_credentials(uri: str) -> None:
    # After a "?" only: "token=x" may be the name of a folder.
    query = uri.partition("?")[2]
    if holds_login(uri) or holds_credential(query):
        raise InvalidOptionError(
            f"no credentials in a URI, they would be shown with it; use storage options: {redact(uri)}"
        )


def _names(prefixes: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in prefixes)


_WAITING = (
    Option(("timeout", "read_timeout"), (_PATIENCE, "read"), seconds),
    Option(("connect_timeout", "connection_timeout"), (_PATIENCE, "connect"), seconds),
    Option(("max_retries",), (_PATIENCE, "retries"), _count),
    Option(("retry_timeout",), (_PATIENCE, "total"), seconds),
)
_CERTIFICATES = Option(("allow_invalid_certificates",), (), _checked_certificates)
_AWS = ("aws_", "")
_AZURE = ("azure_storage_", "azure_", "")
_GOOGLE = ("google_", "")
_GOOGLE_FILES = ("service_account", "service_account_path", "application_credentials")


def _s3(client: Client, uri: str, root: str, patience: Patience, told: bool | None) -> Store:
    bucket, _, path = root.partition("/")
    if root.startswith("arn:"):
        bucket, path = client.file_system().split_path(root)[:2]
    store = S3Store(client, uri, bucket, path, S3_PROMISES, patience)
    place = f"{client.name} {bucket}"
    return _trusted(store, told, place, rounds=1, exempt=S3Store.is_amazon)


def _s3_arguments(arguments: dict[str, Any], patience: Patience) -> dict[str, Any]:
    """Timeouts, enough connections for parallel requests, and no retries by the client."""
    config = {
        "connect_timeout": patience.connect,
        "read_timeout": patience.read,
        "max_pool_connections": PARALLEL,
        "retries": {"total_max_attempts": 1},
        **_checksums(arguments),
        **(arguments.get("config_kwargs") or {}),
    }
    return {**arguments, "config_kwargs": config}


def _checksums(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the checksums that botocore adds by default, where the endpoint is given and may not know them.

    Some servers refuse them, and others answer a read beside a write with the checksum of the one and the content of
    the other. Requests have a length and a signature of their content, or TLS.
    """
    endpoint = arguments.get("endpoint_url") or (arguments.get("client_kwargs") or {}).get("endpoint_url")
    if not endpoint or is_amazon(str(endpoint)):
        return {}
    wanted = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    return {name: value for name, value in wanted.items() if not os.environ.get(f"AWS_{name.upper()}")}


def _azure(client: Client, uri: str, root: str, patience: Patience, told: bool | None) -> Store:
    bucket, _, path = root.partition("/")
    return _trusted(AzureStore(client, uri, bucket, path, AZURE_PROMISES, patience), told, "", rounds=0)


def _azure_in_uri(uri: str) -> dict[str, Any]:
    """The account and the host of blobs in ``scheme://container@host/path``, whichever cloud the host belongs to."""
    netloc = urlsplit(uri).netloc
    _, at, host = netloc.rpartition("@")
    if not at:
        return {}
    account, dot, rest = host.partition(".")
    if not dot:
        raise InvalidOptionError(f"not a host of Azure's storage: {host!r} in {redact(uri)}")
    # As blobs, through the twin of the host for folders: account.dfs.DOMAIN, account.zone.dfs.DOMAIN.
    blobs = f".{rest}".replace(".dfs.", ".blob.", 1)
    return {"account_name": account, "account_host": f"{account}{blobs}"}


def _azure_arguments(arguments: dict[str, Any], _patience: Patience) -> dict[str, Any]:
    """A host of https is all that adlfs takes. Another scheme, a path, or a key for a host that does not begin with the
    account's name as those of Azure's own clouds do, goes into a connection string.
    """
    _check_connection_string(arguments)
    endpoint = str(arguments.get("account_host") or "").rstrip("/")
    if arguments.get("connection_string") or not endpoint:
        return arguments  # adlfs looks at a connection string first
    scheme, separator, host = endpoint.partition("://")
    if not separator:
        scheme, host = "https", endpoint
    key = arguments.get("account_key") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    if scheme == "https" and "/" not in host and not (key and ".blob.core." not in host):
        return {**arguments, "account_host": host}
    arguments = {name: value for name, value in arguments.items() if name != "account_host"}
    parts = {"DefaultEndpointsProtocol": scheme, "BlobEndpoint": f"{scheme}://{host}"}
    for name, part in (("account_name", "AccountName"), ("account_key", "AccountKey")):
        parts[part] = arguments.pop(name, None) or os.environ.get(f"AZURE_STORAGE_{name.upper()}", "")
    parts["SharedAccessSignature"] = str(arguments.pop("sas_token", "")).removeprefix("?")
    return {**arguments, "connection_string": ";".join(f"{part}={value}" for part, value in parts.items() if value)}


def _check_connection_string(arguments: Mapping[str, Any]) -> None:
    """Raise where it is of another account than the URI: its host would be asked, and get its key."""
    text = arguments.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    found = re.search(r"(?i)(?:^|;)AccountName=([^;]*)", text)
    account = arguments.get("account_name")
    if found and account and found.group(1) != account:
        raise InvalidOptionError(
            f"the connection string is of the storage account {found.group(1)!r}, and the table of {account!r}"
        )


def _gcs(client: Client, uri: str, root: str, patience: Patience, told: bool | None) -> Store:
    bucket, _, path = root.partition("/")
    return _trusted(GcsStore(client, uri, bucket, path, GCS_PROMISES, patience), told, "", rounds=0)


def _gcs_arguments(arguments: dict[str, Any], _patience: Patience) -> dict[str, Any]:
    """The account of an emulator, as deltalake's users write it, names its address and needs no login."""
    account = arguments.get("token")
    if isinstance(account, Mapping) and account.get("disable_oauth"):
        named = {"endpoint_url": _address("", account["gcs_base_url"])} if account.get("gcs_base_url") else {}
        return {**named, **arguments, "token": "anon"}
    return arguments


def _any(client: Client, uri: str, root: str, _patience: Patience, told: bool | None) -> Store:
    store = FsspecStore(client.file_system(), root, uri, HOPES)
    return _trusted(store, told, f"{client.name} {uri.partition('://')[2].partition('/')[0]}", rounds=10)


def _trusted(
    store: Store, told: bool | None, place: str, rounds: int, exempt: Callable[[Any], bool] | None = None
) -> Store:
    """A store as the user has it, or else one that is tried at its first write, unless there is nothing to try."""
    if told is False:
        return ReadOnlyStore(store, "the storage option put_if_absent says that it has two winners at times")
    return store if told or not rounds else Probed(store, place, rounds, exempt)


def _web(client: Client, uri: str, _root: str, patience: Patience, _told: bool | None) -> Store:
    return HttpStore(client, uri, patience)


S3 = UriScheme(
    name="s3",
    package="s3fs",
    extra="s3",
    service="S3",
    promises=S3_PROMISES,
    make=_s3,
    options=(
        Option(_names(_AWS, "access_key_id"), ("key",)),
        Option(_names(_AWS, "secret_access_key"), ("secret",)),
        Option(_names(_AWS, "session_token", "token"), ("token",)),
        Option(_names(_AWS, "region", "default_region"), ("client_kwargs", "region_name")),
        Option((*_names(_AWS, "endpoint_url", "endpoint"), "aws_endpoint_url_s3"), ("endpoint_url",)),
        Option(_names(_AWS, "profile"), ("profile",)),
        Option((*_names(_AWS, "skip_signature"), "anon"), ("anon",), truth),
        Option(_names(_AWS, "virtual_hosted_style_request"), ("config_kwargs", "s3", "addressing_style"), _addressing),
        *_WAITING,
        Option(_names(_AWS, "allow_http"), (_HTTP,), truth),
        _CERTIFICATES,
        Option(_names(_AWS, "conditional_put", "copy_if_not_exists"), (), _etag_only),
        Option(_names(_AWS, "s3_locking_provider", "s3_dynamo_db_table_name", "delta_dynamo_table_name"), (), _no_lock),
        Option(_names(_AWS, "s3_allow_unsafe_rename"), (), truth),  # there is no rename here
        Option(_names(_AWS, "imdsv1_fallback"), (), truth),  # how a machine's own login is asked for, clients decide
    ),
    finish=_s3_arguments,
    environment=(
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ALLOW_HTTP",
        "AWS_SKIP_SIGNATURE",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    ),
    strict=True,
)

AZURE = UriScheme(
    name="abfs",
    package="adlfs",
    extra="adls",
    service="Azure",
    promises=AZURE_PROMISES,
    make=_azure,
    options=(
        Option(_names(_AZURE, "account_name"), ("account_name",)),
        Option(_names(_AZURE, "account_key", "access_key", "master_key"), ("account_key",)),
        Option(_names(_AZURE, "sas_token", "sas_key"), ("sas_token",)),
        Option(_names(_AZURE, "client_id"), ("client_id",)),
        Option(_names(_AZURE, "client_secret"), ("client_secret",)),
        Option(_names(_AZURE, "tenant_id", "authority_id"), ("tenant_id",)),
        Option(_names(_AZURE, "connection_string"), ("connection_string",)),
        Option(_names(_AZURE, "bearer_token", "token"), ("credential",), _bearer),
        Option(_names(_AZURE, "use_azure_cli"), ("credential",), _azure_cli),
        Option(_names(_AZURE, "use_fabric_endpoint"), (_FABRIC,), truth),
        Option(_names(_AZURE, "endpoint", "account_host"), ("account_host",)),
        Option(_names(_AZURE, "skip_signature", "anon"), ("anon",), truth),
        *_WAITING,
        Option(_names(_AZURE, "allow_http"), (_HTTP,), truth),
        _CERTIFICATES,
    ),
    finish=_azure_arguments,
    environment=(
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_STORAGE_ALLOW_HTTP",
        "AZURE_ALLOW_HTTP",
        "AZURE_SKIP_SIGNATURE",
        "AZURE_STORAGE_TOKEN",
        "AZURE_USE_AZURE_CLI",
    ),
    strict=True,
    in_uri=_azure_in_uri,
)

GCS = UriScheme(
    name="gs",
    package="gcsfs",
    extra="gcs",
    service="GCS",
    promises=GCS_PROMISES,
    make=_gcs,
    options=(
        Option(
            _names(_GOOGLE, "service_account", "service_account_path", "application_credentials"), ("token",), _account
        ),
        Option(_names(_GOOGLE, "service_account_key"), ("token",), _account_key),
        Option((*_names(_GOOGLE, "skip_signature"), "anon"), ("token",), _nobody),
        Option((*_names(_GOOGLE, "base_url", "endpoint_url"), "endpoint"), ("endpoint_url",), _address),
        *_WAITING,
        Option(_names(_GOOGLE, "allow_http"), (_HTTP,), truth),
        _CERTIFICATES,
    ),
    finish=_gcs_arguments,
    environment=(
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_SKIP_SIGNATURE",
        "GOOGLE_BASE_URL",
        "GOOGLE_ALLOW_HTTP",
    ),
    strict=True,
)

HTTP = UriScheme(name="http", package="aiohttp", make=_web, options=_WAITING)

PROTOCOLS: dict[str, UriScheme] = {
    **dict.fromkeys(("http", "https"), HTTP),
    **dict.fromkeys(("s3", "s3a"), S3),
    **dict.fromkeys(("abfs", "abfss", "az", "azure", "wasb", "wasbs"), AZURE),
    **dict.fromkeys(("gs", "gcs"), GCS),
}


def other(scheme: str) -> UriScheme:
    """A protocol that only fsspec knows: what it opens can be read, and written once it has passed a probe."""
    return UriScheme(name=scheme, package=f"with fsspec's {scheme} file system", make=_any)


def renamed_s3(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Storage options of S3 for another library.

    Args:
        options: the options, by the names of s3fs or of deltalake.
        names: the library's names of ``key``, ``secret``, ``token``, ``region_name`` and ``endpoint_url``.

    Returns:
        The options, those by the library's names; all others unchanged.

    Example:
        >>> from refdelta_storage.protocols import renamed_s3
        >>> renamed_s3({"AWS_REGION": "us-east-1", "put_if_absent": True}, {"region_name": "s3.region"})
        {'s3.region': 'us-east-1', 'put_if_absent': True}
    """
    targets = {name: option.target[-1] for option in S3.options if option.target for name in option.names}
    return {names.get(targets.get(name.lower(), name), name): value for name, value in options.items()}
