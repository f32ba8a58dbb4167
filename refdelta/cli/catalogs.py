"""``refdelta catalog``: the tables of a catalog, their names and folders; ``refdelta serve``: it serves them."""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import click

from refdelta.cli.app import ShownGroup, app
from refdelta.cli.group import (
    CATALOG_VARIABLE,
    FOLDER,
    LOCATIONS_VARIABLE,
    Command,
    catalog_in_use,
    catalog_timeout,
    in_a_catalog,
    storage_options,
)
from refdelta.cli.render import echo_json, say
from refdelta.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.catalog import Catalog

TOKENS_VARIABLE = "REFDELTA_TOKENS"
_FILE = click.Path(dir_okay=False, path_type=Path)
_NEEDED = ("sqlalchemy", "starlette", "uvicorn")


@app.group("catalog", cls=ShownGroup)
def catalog_commands() -> None:
    """List, name, publish, adopt and drop the tables of a catalog.

    Every command on a TABLE takes --catalog, too: TABLE is then a name. 'refdelta create' creates a table in a catalog.
    """


def _in_a_catalog(command: Command) -> Command:
    for decorate in (click.option("--json", "as_json", is_flag=True, help="JSON for programs."), storage_options):
        command = decorate(command)
    return in_a_catalog(command)


def _opened(options: dict[str, str]) -> Catalog:
    found = catalog_in_use(options)
    if found is None:
        raise click.UsageError(f"say which catalog: --catalog URL, or {CATALOG_VARIABLE} in the environment")
    return found


@catalog_commands.command(
    "tables",
    examples=(
        "catalog tables --catalog sqlite:///catalog.db",
        "catalog tables sales --json",
    ),
)
@click.argument("namespace", required=False)
@_in_a_catalog
def tables(namespace: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """List the names of the tables, all of them or those in NAMESPACE."""
    found = _opened(storage_options).tables(namespace)
    if as_json:
        echo_json(found)
        return
    for name in found:
        say(name)


@catalog_commands.command(examples=("catalog register sales.old_orders s3://bucket/orders",))
@click.argument("name")
@click.argument("folder", type=FOLDER)
@_in_a_catalog
def register(name: str, folder: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Give the table in FOLDER a NAME. Its commits do not go through the catalog."""
    table = _opened(storage_options).register_table(name, folder)
    if as_json:
        echo_json({"name": name, "location": table.table_uri, "version": table.version()})
    else:
        say(f"{name}: {table.table_uri}, version {table.version()}")


@catalog_commands.command(examples=("catalog rename sales.orders sales.orders_2025",))
@click.argument("name")
@click.argument("new")
@_in_a_catalog
def rename(name: str, new: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Rename the table NAME. Programs that have it open go on."""
    _opened(storage_options).rename_table(name, new)
    if as_json:
        echo_json({"name": new})
    else:
        say(f"{name} is {new} now")


@catalog_commands.command(
    examples=(
        "catalog drop sales.orders",
        "catalog drop sales.orders --purge",
    ),
)
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete its files, too.")
@_in_a_catalog
def drop(name: str, purge: bool, storage_options: dict[str, str], as_json: bool) -> None:
    """Remove the table NAME from the catalog. Without --purge its files stay."""
    _opened(storage_options).drop_table(name, purge=purge)
    if as_json:
        echo_json({"name": name, "purged": purge})
    else:
        say(f"{name} is dropped" + (", and its files are deleted" if purge else "; its files stay"))


@catalog_commands.command(examples=("catalog publish sales.orders",))
@click.argument("name")
@_in_a_catalog
def publish(name: str, storage_options: dict[str, str], as_json: bool) -> None:
    """Write the ratified commits of the table NAME into its log, as writers do in the background."""
    count = _opened(storage_options).publish(name)
    if as_json:
        echo_json({"published": count})
    else:
        say(f"{counted(count, 'commit')} published")


@catalog_commands.command(
    examples=(
        "catalog adopt sales.orders",
        "catalog adopt sales.orders --discard",
    ),
)
@click.argument("name")
@click.option("--discard", is_flag=True, help="Drop versions that the folder does not have, or has with other content.")
@_in_a_catalog
def adopt(name: str, discard: bool, storage_options: dict[str, str], as_json: bool) -> None:
    """Take over the versions that the folder of the table NAME has, after a restore of the catalog or of the folder.

    Stop the writers first. Commits that are dropped are set aside below _delta_log/_staged_commits.
    """
    done = _opened(storage_options).adopt(name, discard=discard)
    if as_json:
        echo_json(dataclasses.asdict(done))
        return
    say(f"{name}: the latest version was {done.before}, and is {done.latest} now")
    for what, versions in (("adopted", done.adopted), ("dropped", done.dropped)):
        if versions:
            say(f"{what}: {', '.join(map(str, versions))}")
    for key in done.saved:
        say(f"set aside: {key}")


# --- for other programs -----------------------------------------------------------------------------------------------


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
    envvar=CATALOG_VARIABLE,
    help=f"The database, as SqlCatalog takes it. Put a URL with a password into the variable {CATALOG_VARIABLE}: other "
    "users of a machine can see command lines.",
)
@click.option(
    "--warehouse", metavar="DIR|URI", help="The folder for new tables. Without one, clients cannot create tables."
)
@click.option(
    "--locations",
    metavar="DIR|URI",
    multiple=True,
    envvar=LOCATIONS_VARIABLE,
    help="A further folder whose tables are served. Tables of the database that are elsewhere are refused, and without "
    "--warehouse and --locations those that are not below the folder of a SQLite file. May be repeated.",
)
@click.option(
    "--token-file",
    type=_FILE,
    help=f"The bearer tokens, one a line; otherwise they come from the variable {TOKENS_VARIABLE}. Each one opens "
    "everything.",
)
@click.option(
    "--metrics-token-file",
    type=_FILE,
    help="Further tokens, one a line, which open nothing but GET /metrics: for Prometheus.",
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
    help="Give clients the server's credentials, those of --storage-option, or AWS_... and AZURE_... in the "
    "environment, so that they need none of their own. They are limited neither to a table, nor to reading, nor in "
    "time.",
)
@click.option(
    "--vended-keys",
    type=_FILE,
    help="Give clients the credentials in this file instead: NAME=VALUE a line, such as aws_access_key_id=... It is "
    "read anew for each request, so that keys can be exchanged.",
)
@catalog_timeout()
@storage_options
def serve(
    url: str,
    warehouse: str | None,
    locations: tuple[str, ...],
    token_file: Path | None,
    metrics_token_file: Path | None,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    max_unpublished: int,
    vend_credentials: bool,
    vended_keys: Path | None,
    catalog_timeout: float | None,
    storage_options: dict[str, str],
) -> None:
    """Serve the tables of a catalog to other programs, by Unity Catalog's Delta API.

    Runs until it is stopped. Names have three parts: catalog.schema.table.
    """
    from refdelta.arguments import missing_package
    from refdelta.errors import InvalidArgumentError

    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise missing_package("serve", package, extra="serve")
    from refdelta.catalog.server import listen, make_app, read_tokens, run, url_of
    from refdelta.catalog.service import open_served, read_keys

    if (certificate is None) != (key is None):
        raise InvalidArgumentError("--certificate and --key belong together")
    text = token_file.read_text() if token_file is not None else os.environ.get(TOKENS_VARIABLE, "")
    if not text.strip():
        raise InvalidArgumentError(f"the server needs tokens: --token-file, or the variable {TOKENS_VARIABLE}")
    tokens = read_tokens(text)
    metrics_tokens = read_tokens(metrics_token_file.read_text()) if metrics_token_file is not None else []
    if vended_keys is not None:
        read_keys(vended_keys)
    for warning in _warnings(host, certificate is not None, [token_file, metrics_token_file, key, vended_keys]):
        say(f"warning: {warning}", err=True)
    with open_served(url, warehouse, storage_options or None, locations or None, timeout=catalog_timeout) as catalog:
        catalog.keys = vended_keys
        vend = vend_credentials or vended_keys is not None
        application = make_app(
            catalog, tokens, most_unpublished=max_unpublished, vend=vend, metrics_tokens=metrics_tokens
        )
        with listen(host, port) as listener:
            say(f"serving {catalog.name} at {url_of(listener, tls=certificate is not None)}")
            files = {"certificate": certificate, "key": key} if certificate and key else None
            run(application, listener, files)


def _warnings(host: str, tls: bool, secrets: list[Path | None]) -> Iterator[str]:
    if not tls and not _is_loopback(host):
        yield (f"tokens go unencrypted to {host}: use --certificate and --key, or put a proxy with TLS before it")
    for file in secrets:
        if file is not None and os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield f"other users of this machine can open {file}: chmod 600 {file}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
