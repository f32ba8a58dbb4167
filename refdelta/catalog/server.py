"""The HTTP server of Unity Catalog's Delta API over a :class:`SqlCatalog`: an ASGI application, and uvicorn around it.

Every request has a token, but for ``GET /health``, a bounded body and a bounded time. Errors have the API's JSON form,
and hold no credentials.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
import re
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from refdelta.catalog import delta_api as api
from refdelta.catalog.listener import KNOWN, Impatient, Listener
from refdelta.catalog.metrics import Metrics, new_metrics
from refdelta.catalog.service import ApiError, HeldBytes, ServedCatalog, invalid
from refdelta.catalog.service_together import TogetherService
from refdelta.catalog.together_api import RATIFICATIONS, VERSIONS, Ratification, RatificationReply
from refdelta.errors import (
    CatalogMismatchError,
    CommitOutcomeUnknownError,
    DeltaError,
    InvalidArgumentError,
    NotEnoughMemoryError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from refdelta_storage.errors import StorageError, redact

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("refdelta.serve")

_LARGEST_BODY = 4 * 2**20
_BODIES_HELD = 64 * 2**20
_BODY_SECONDS = 15.0
_REQUEST_SECONDS = 60.0
_THREADS = 32
_MOST_TRANSACTIONS = 256
_SHORTEST_TOKEN = 16
_LONGEST_LOGGED = 50_000
_HEALTH, _METRICS = "/health", "/metrics"
_HEALTH_SECONDS = 5.0
_HEALTH_AGE = 1.0
"""The time in seconds for which an answer about the database is given again: anybody may ask."""
_OF_A_TABLE = {"GET": "load", "HEAD": "exists", "POST": "update", "DELETE": "drop"}
_MISMATCH_TYPES = {kind: name for name, kind in api.CATALOG_MISMATCHES.items()}
_ENTITY_TAG = re.compile(r'(?:W/)?"([0-9a-f-]{36})"')
_T = TypeVar("_T")

_TABLE = "/catalogs/{catalog}/schemas/{schema}/tables/{table}"
_ENDPOINTS = [
    "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
    "POST /v1/catalogs/{catalog}/schemas/{schema}/tables",
    f"GET /v1{_TABLE}",
    f"POST /v1{_TABLE}",
    f"DELETE /v1{_TABLE}",
    f"HEAD /v1{_TABLE}",
    f"POST /v1{_TABLE}/rename",
    f"GET /v1{_TABLE}/credentials",
    f"POST /v1{_TABLE}/metrics",
    "GET /v1/staging-tables/{table_id}/credentials",
    api.TRANSACTIONS,
]


def read_tokens(text: str) -> list[str]:
    """The tokens of a file or a variable: one a line; empty lines and lines that begin with ``#`` are comments.

    Raises:
        InvalidArgumentError: there is none, or one is too short or has characters that no header can carry.
    """
    tokens = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for number, token in enumerate(tokens, 1):
        if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidArgumentError(
                f"token {number} is not at least {_SHORTEST_TOKEN} printable ASCII characters without a space"
            )
    if not tokens:
        raise InvalidArgumentError("there is no token: a server without one would serve everybody")
    return tokens


def make_app(
    catalog: ServedCatalog,
    tokens: Sequence[str],
    *,
    most_unpublished: int = 100,
    vend: bool = False,
    metrics_tokens: Sequence[str] = (),
    seconds: float = _REQUEST_SECONDS,
) -> ASGIApp:
    """The ASGI application.

    Args:
        catalog: the catalog.
        tokens: the bearer tokens; each one opens everything.
        most_unpublished: how many commits of a table may wait to be published.
        vend: whether clients get the server's own credentials for the store.
        metrics_tokens: further tokens, which open nothing but the metrics.
        seconds: the time of a request.
    """
    metrics = catalog.metrics = new_metrics()
    service = TogetherService(catalog, most_unpublished=most_unpublished, vend=vend, patience=seconds / 2)
    endpoints = _Endpoints(service, seconds, metrics)
    app = Starlette(routes=endpoints.routes(), exception_handlers={HTTPException: _http_error, Exception: _failure})
    app.router.redirect_slashes = False
    return _Counted(_Guard(app, tokens, metrics_tokens), metrics)


class _Counted:
    """Counts the requests and their answers."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), "none"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self._metrics.began()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.ended(_operation(scope), status, time.perf_counter() - begun)


def _operation(scope: Scope) -> str:
    """The operation of a request that was answered: one of those of :class:`_Endpoints`, or ``other``."""
    name = getattr(scope.get("endpoint"), "__name__", "").lstrip("_")
    return (_OF_A_TABLE.get(scope["method"], "other") if name == "table" else name) or "other"


class _Guard:
    """Checks the token of each request before anything else is looked at, and logs failures without credentials."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str], metrics_tokens: Sequence[str]) -> None:
        self._app = app
        # Digests have one length, so that a comparison tells nothing about a token, its length included.
        self._digests = [_digest(token.encode()) for token in tokens]
        self._of_metrics = [_digest(token.encode()) for token in metrics_tokens]
        self._secrets = frozenset((*tokens, *metrics_tokens))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            refused = self._refusal(scope)
            if refused is not None:
                await refused(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - it was answered, and is raised again to be logged
            text = "".join(traceback.format_exception(error))
            log.error("%s", redact(text, self._secrets, _LONGEST_LOGGED))  # noqa: TRY400 - redacted

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["path"] == _HEALTH:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        found = _digest(token.strip())
        digests = (*self._digests, *self._of_metrics) if scope["path"] == _METRICS else self._digests
        same = [hmac.compare_digest(found, digest) for digest in digests]
        if scheme.lower() != b"bearer" or not any(same):
            reply = _error(401, "NotAuthorizedException", "the request has no token, or none of this server")
            reply.headers["WWW-Authenticate"] = "Bearer"
            reply.headers["Connection"] = "close"
            return reply
        scope[KNOWN] = True
        if b"%2f" in scope.get("raw_path", b"").lower() or b"%5c" in scope.get("raw_path", b"").lower():
            return _error(400, "BadRequestException", "a name in the path has no slash")
        return None


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class _Endpoints:
    """The requests of the API, each turned into one call of the service."""

    def __init__(self, service: TogetherService, seconds: float, metrics: Metrics | None = None) -> None:
        self._service = service
        self._seconds = seconds
        self._measured = metrics or Metrics()
        self._healthy, self._looked_at = False, -_HEALTH_AGE
        self._looking = asyncio.Lock()
        self._threads: anyio.CapacityLimiter | None = None
        # Transactions wait for the versions before theirs, and other requests are not to wait for them.
        self._transactions: anyio.CapacityLimiter | None = None
        self._lookout: anyio.CapacityLimiter | None = None
        self._bodies = HeldBytes(_BODIES_HELD, "bodies")

    def routes(self) -> list[Route]:
        """The paths, each with the methods that it takes."""
        root = f"{api.ROOT}{api.DELTA}"
        schema = f"{root}/catalogs/{{catalog}}/schemas/{{schema}}"
        table = f"{root}{_TABLE}"
        return [
            Route(f"{root}/config", self._config, methods=["GET"]),
            Route(f"{schema}/staging-tables", self._stage, methods=["POST"]),
            Route(f"{schema}/tables", self._create, methods=["POST"]),
            Route(table, self._table, methods=["GET", "HEAD", "POST", "DELETE"]),
            Route(f"{table}/rename", self._rename, methods=["POST"]),
            Route(f"{table}/credentials", self._credentials, methods=["GET"]),
            Route(f"{table}/transactions", self._transact, methods=["POST"]),
            Route(f"{table}/metrics", self._metrics, methods=["POST"]),
            Route(f"{root}/staging-tables/{{table_id}}/credentials", self._staging_credentials, methods=["GET"]),
            Route(f"{api.ROOT}{VERSIONS}", self._versions, methods=["GET"]),
            Route(f"{api.ROOT}{RATIFICATIONS}", self._ratify, methods=["POST"]),
            Route(f"{api.ROOT}/catalogs", self._catalogs, methods=["GET"]),
            Route(f"{api.ROOT}/schemas", self._schemas, methods=["GET"]),
            Route(f"{api.ROOT}/tables", self._tables, methods=["GET"]),
            Route(_HEALTH, self._health, methods=["GET"]),
            Route(_METRICS, self._scrape, methods=["GET"]),
        ]

    async def _health(self, _request: Request) -> Response:
        """The state of the database, which is asked once a second at most: anybody may ask the server."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _HEALTH_AGE:
                self._healthy = await self._database_answers()
                self._looked_at = time.monotonic()
        status, said = (200, "ok") if self._healthy else (503, "the database does not answer")
        return Response(msgspec.json.encode({"status": said}), status, media_type="application/json")

    async def _database_answers(self) -> bool:
        if self._lookout is None:
            self._lookout = anyio.CapacityLimiter(1)
        try:
            with anyio.fail_after(_HEALTH_SECONDS):
                await anyio.to_thread.run_sync(self._service.check, abandon_on_cancel=True, limiter=self._lookout)
        except TimeoutError:
            return False
        except (DeltaError, StorageError) as error:
            log.warning("%s", redact(str(error)))
            return False
        return True

    async def _scrape(self, request: Request) -> Response:
        found = self._measured.text(request.headers.get("accept", ""))
        if found is None:
            message = (
                "the server counts nothing: it needs the package prometheus-client (pip install 'refdelta[serve]')"
            )
            return _error(501, "UnsupportedOperationException", message)
        text, kind = found
        return Response(text, headers={"Content-Type": kind})

    async def _config(self, request: Request) -> Response:
        asked = request.query_params
        call = functools.partial(self._service.config, asked.get("catalog"), asked.get("protocol-versions"), _ENDPOINTS)
        return await self._answer(call)

    async def _stage(self, request: Request) -> Response:
        return await self._with_body(request, api.CreateStagingTable, self._service.stage)

    async def _create(self, request: Request) -> Response:
        return await self._with_body(request, api.CreateTable, self._service.create)

    async def _table(self, request: Request) -> Response:
        names = _names(request)
        match request.method:
            case "POST":
                return await self._with_body(request, api.UpdateTable, self._update)
            case "DELETE":
                return await self._if_match(request, self._service.drop)
            case "HEAD":
                return await self._answer(functools.partial(self._service.exists, *names))
            case _:
                return await self._if_match(request, self._service.load)

    def _update(self, catalog: str, schema: str, table: str, body: api.UpdateTable) -> msgspec.Raw:
        if not any(isinstance(one, api.AddCommit) for one in body.updates):
            return self._service.update(catalog, schema, table, body)
        with self._committing():
            return self._service.update(catalog, schema, table, body)

    @contextmanager
    def _committing(self) -> Iterator[list[str]]:
        """Count the outcome of the commit in the block: the one that it puts into the list, ``committed`` for none, or
        that of its error.
        """
        found: list[str] = []
        try:
            yield found
        except Exception as error:
            self._measured.commit(_outcome(error))
            raise
        self._measured.commit(found[0] if found else "committed")

    async def _if_match(self, request: Request, call: Callable[..., Any]) -> Response:
        return await self._answer(lambda: call(*_names(request), only=_condition(request)))

    async def _rename(self, request: Request) -> Response:
        def call(catalog: str, schema: str, table: str, body: api.RenameTable) -> None:
            self._service.rename(catalog, schema, table, body, _condition(request))

        return await self._with_body(request, api.RenameTable, call)

    async def _credentials(self, request: Request) -> Response:
        operation = request.query_params.get("operation")
        return await self._answer(functools.partial(self._service.credentials, operation, *_names(request)))

    async def _transact(self, request: Request) -> Response:
        if self._transactions is None:
            self._transactions = anyio.CapacityLimiter(_MOST_TRANSACTIONS)
        if self._transactions.borrowed_tokens >= _MOST_TRANSACTIONS:
            message = f"{_MOST_TRANSACTIONS} transactions are under way"
            return _api_error(ApiError(429, api.TOO_MANY, message, retry_after=1))

        def call(catalog: str, schema: str, table: str, body: bytes) -> api.TransactionReply:
            with self._committing() as answered:
                reply = self._service.transact(catalog, schema, table, body, _condition(request))
                answered.append(reply.outcome)
            return reply

        return await self._with_body(request, None, call, self._transactions)

    async def _metrics(self, request: Request) -> Response:
        return await self._with_body(request, api.ReportMetrics, self._service.metrics)

    async def _staging_credentials(self, request: Request) -> Response:
        return await self._answer(functools.partial(self._service.staging_credentials, request.path_params["table_id"]))

    # Several tables at one moment, which the Delta API lacks.

    async def _versions(self, _request: Request) -> Response:
        return await self._answer(self._service.versions)

    async def _ratify(self, request: Request) -> Response:
        return await self._with_body(request, Ratification, self._ratified)

    def _ratified(self, body: Ratification) -> RatificationReply:
        with self._committing() as answered:
            reply = self._service.ratify(body)
            if any(one.outcome != "committed" for one in reply.parts):
                answered.append("conflict")
        return reply

    # Unity Catalog's own lists, which the Delta API lacks: names, and no more.

    async def _catalogs(self, _request: Request) -> Response:
        return await self._answer(lambda: {"catalogs": [{"name": one} for one in self._service.groups(())]})

    async def _schemas(self, request: Request) -> Response:
        catalog = request.query_params.get("catalog_name", "")

        def call() -> Any:
            found = self._service.groups((catalog,))
            return {
                "schemas": [{"name": one, "catalog_name": catalog, "full_name": f"{catalog}.{one}"} for one in found]
            }

        return await self._answer(call)

    async def _tables(self, request: Request) -> Response:
        asked = request.query_params
        catalog, schema = asked.get("catalog_name", ""), asked.get("schema_name", "")
        most = asked.get("max_results", "0")

        def call() -> Any:
            if not most.isdecimal() or len(most) > 9:
                raise ApiError(400, "BadRequestException", "max_results is a number")
            found, token = self._service.names((catalog, schema), int(most), asked.get("page_token", ""))
            tables = [
                {
                    "name": name,
                    "catalog_name": catalog,
                    "schema_name": schema,
                    "table_type": "MANAGED" if row.entry.managed else "EXTERNAL",
                    "data_source_format": "DELTA",
                    "table_id": row.entry.table_id,
                }
                for name, row in found
            ]
            return {"tables": tables, "next_page_token": token}

        return await self._answer(call)

    async def _with_body(
        self,
        request: Request,
        kind: type[Any] | None,
        call: Callable[..., Any],
        threads: anyio.CapacityLimiter | None = None,
    ) -> Response:
        """The reply of a call with the names in the path, and with the body: of this kind, or as bytes for None."""
        announced = _announced(request)
        size = min(announced, _LARGEST_BODY)
        begun = False

        def work() -> Any:
            nonlocal begun
            begun = True
            try:
                return call(*_names(request), body if kind is None else _decoded(body, kind))
            finally:
                self._bodies.give_back(size)

        try:
            self._bodies.take(size)
        except ApiError as error:
            return _api_error(error)
        try:
            body = await _body(request, announced)
            return await self._answer(work, late="CommitStateUnknownException", threads=threads)
        except ApiError as error:
            return _api_error(error)
        finally:
            if not begun:  # what has begun goes on in its thread, also when the time is over
                self._bodies.give_back(size)

    async def _answer(
        self,
        call: Callable[[], Any],
        late: str = "InternalServerErrorException",
        threads: anyio.CapacityLimiter | None = None,
    ) -> Response:
        """The reply of a call that may wait for the database or the store, in a thread and for a bounded time. A call
        that takes longer goes on there, within the patience of its stores.
        """
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        try:
            with anyio.fail_after(self._seconds):
                found = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=threads or self._threads)
        except TimeoutError:
            return _error(500, late, "the request took too long; load the table to see whether it had an effect")
        except (DeltaError, StorageError) as error:
            return _api_error(error)
        if found is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(found), media_type="application/json")


def _names(request: Request) -> list[str]:
    """The parts of the table's name, as the path has them."""
    return [value for name, value in request.path_params.items() if name in ("catalog", "schema", "table")]


def _condition(request: Request) -> str | None:
    """The id of the table in ``If-Match``, which has it as an entity tag; None without the condition, or for ``*``.

    Raises:
        ApiError: it has several entity tags, or is none.
    """
    text = request.headers.get("if-match", "*").strip()
    if text == "*":
        return None
    found = _ENTITY_TAG.fullmatch(text)
    if found is None:
        raise ApiError(400, "BadRequestException", 'If-Match is * or the id of the table: "<id>"')
    return found.group(1)


def _announced(request: Request) -> int:
    """The size of a body by its header; the largest one if it comes in chunks."""
    return int(request.headers.get("content-length", _LARGEST_BODY))


async def _body(request: Request, announced: int) -> bytes:
    """The body of a request, bounded in size and in time."""
    too_large = ApiError(413, "BadRequestException", f"a body has at most {_LARGEST_BODY} bytes")
    if announced > _LARGEST_BODY:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _LARGEST_BODY:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, "BadRequestException", "the body did not come in time") from None
    return b"".join(parts)


def _decoded(body: bytes, kind: type[_T]) -> _T:
    try:
        return api.decoder_of(kind).decode(body)
    except msgspec.ValidationError as error:
        raise invalid(f"the body is not as the API has it: {_line(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "BadRequestException", f"the body is not JSON: {_line(error)}") from None


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


# --- errors ---


def _outcome(error: Exception) -> str:
    """The outcome of a commit that ended with an error, by :data:`~refdelta.catalog.metrics.OUTCOMES`."""
    match error:
        case ApiError(kind="CommitStateUnknownException") | CommitOutcomeUnknownError():
            return "unknown"
        case ApiError(kind="CommitVersionConflictException"):
            return "conflict"
        case ApiError() | CatalogMismatchError() | InvalidArgumentError():
            return "refused"
        case TableNotFoundError() | TableAlreadyExistsError():
            return "refused"
    return "failed"


def _api_error(error: Exception) -> Response:
    match error:
        case ApiError():
            reply = _error(error.status, error.kind, str(error))
            if error.retry_after is not None:
                reply.headers["Retry-After"] = str(error.retry_after)
            return reply
        case TableNotFoundError():
            return _error(404, "NoSuchTableException", "there is no such table")
        case TableAlreadyExistsError():
            return _error(409, "AlreadyExistsException", "there is a table of this name")
        case CatalogMismatchError():
            log.error("%s", redact(str(error)))
            return _error(409, _MISMATCH_TYPES[error.kind], str(error))
        case CommitOutcomeUnknownError():
            log.warning("%s", redact(str(error)))
            return _error(500, "CommitStateUnknownException", "the commit may have happened or not; send it again")
        case NotEnoughMemoryError():
            log.warning("%s", redact(str(error)))
            return _api_error(ApiError(503, api.UNAVAILABLE, "there is not enough memory", retry_after=1))
        case InvalidArgumentError():
            return _error(400, "InvalidParameterValueException", str(error))
        case _:
            log.warning("%s", redact(str(error)))
            message = "the database or the store failed; the log of the server says why"
            return _error(500, "InternalServerErrorException", message)


def _error(status: int, kind: str, message: str) -> Response:
    model = api.ApiErrorModel(message=redact(message), type=kind, code=status)
    return Response(msgspec.json.encode(api.ApiErrorReply(error=model)), status, media_type="application/json")


def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return _error(404, "NotFoundException", "the API has no such path")
    reply = _error(status, "BadRequestException", "the path does not take this method")
    reply.headers.update(getattr(error, "headers", None) or {})
    return reply


def _failure(_request: Request, _cause: Exception) -> Response:
    return _error(500, "InternalServerErrorException", "the server failed; its log says why")


# --- the process ---


def listen(host: str, port: int) -> Listener:
    """A socket that listens; port 0 is any free one.

    Raises:
        InvalidArgumentError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise InvalidArgumentError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from error
    # asyncio does so only for sockets that name their protocol. Without it, each reply to a connection that is used
    # again waits 40 ms for the client's acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """The URL that clients take."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{quote(shown, safe='[]:.')}:{port}{api.ROOT}"


def run(app: ASGIApp, listener: Listener, tls: Mapping[str, Path] | None = None) -> None:
    """Serve until the process is asked to end, by SIGTERM or SIGINT; requests that are under way are answered first.

    Args:
        app: the application.
        listener: the socket.
        tls: the files ``certificate`` and ``key``, for https.
    """
    protocol = type("Bounded", (Impatient,), {"listener": listener})
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",  # strangers could fill the log with warnings about their own requests
        server_header=False,
        proxy_headers=False,
        # So many connections are accepted at once, before the oldest ones can be closed for them.
        backlog=max(1, listener.most // 4),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(_REQUEST_SECONDS),
        h11_max_incomplete_event_size=32 * 1024,
        ssl_certfile=tls["certificate"] if tls else None,
        ssl_keyfile=tls["key"] if tls else None,
    )
    uvicorn.Server(config).run(sockets=[listener])
