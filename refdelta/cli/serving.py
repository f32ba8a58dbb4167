"""``refdelta serve``: Unity Catalog's Delta API over a catalog in a database."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from refdelta.arguments import missing_package
from refdelta.cli.group import app, storage_options
from refdelta.errors import InvalidArgumentError

_TOKENS = "REFDELTA_TOKENS"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEEDED = ("sqlalchemy", "starlette", "uvicorn")


@app.command(
    "serve",
    examples=(
        "serve --catalog sqlite:///catalog.db --warehouse warehouse --token-file tokens",
        "serve --catalog sqlite:////srv/catalog.db --warehouse s3://bucket/tables --max-unpublished 10",
        "serve --catalog sqlite:///catalog.db --host 0.0.0.0 --port 443 --certificate cert.pem --key key.pem",
    ),
)
@click.option(
    "--catalog",
    "url",
    metavar="URL",
    required=True,
    envvar="REFDELTA_CATALOG",
    help="The database, as SqlCatalog takes it. Put a URL with a password into the variable REFDELTA_CATALOG: other "
    "users of a machine can see command lines.",
)
@click.option(
    "--warehouse", metavar="DIR|URI", help="The folder for new tables. Without one, clients cannot create tables."
)
@click.option(
    "--token-file",
    type=_FILE,
    help=f"The bearer tokens, one a line; otherwise they come from the variable {_TOKENS}. Each one opens everything.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 is any free port.")
@click.option(
    "--certificate", type=_FILE, help="The certificate, for https; without it, put a proxy with TLS before it."
)
@click.option("--key", type=_FILE, help="The key of the certificate.")
@click.option(
    "--max-unpublished",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="How many commits of a table may wait to be published; more are refused (429) until somebody publishes.",
)
@click.option(
    "--vend-credentials",
    is_flag=True,
    help="Give clients the credentials of --storage-option, so that they need none of their own. They are the server's "
    "own: neither limited to a table, nor to reading, nor in time.",
)
@storage_options
def serve(
    url: str,
    warehouse: str | None,
    token_file: Path | None,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    max_unpublished: int,
    vend_credentials: bool,
    storage_options: dict[str, str],
) -> None:
    """Serve the tables of a catalog to other programs, by Unity Catalog's Delta API.

    Runs until it is stopped. Names have three parts: catalog.schema.table.
    """
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise missing_package("serve", package, extra="serve")
    from refdelta.catalog.server import listen, make_app, read_tokens, run, url_of
    from refdelta.catalog.service import open_served

    if (certificate is None) != (key is None):
        raise InvalidArgumentError("--certificate and --key belong together")
    text = token_file.read_text() if token_file is not None else os.environ.get(_TOKENS, "")
    if not text.strip():
        raise InvalidArgumentError(f"the server needs tokens: --token-file, or the variable {_TOKENS}")
    tokens = read_tokens(text)
    with open_served(url, warehouse, storage_options or None) as catalog:
        application = make_app(catalog, tokens, most_unpublished=max_unpublished, vend=vend_credentials)
        with listen(host, port) as listener:
            click.echo(f"serving {catalog.name} at {url_of(listener, tls=certificate is not None)}")
            files = {"certificate": certificate, "key": key} if certificate and key else None
            run(application, listener, files)
