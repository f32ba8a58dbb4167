"""``make generate NAME=reference``: the page ``docs/reference.md``, from the code.

Classes are found through the public names, as their users reach them: ``type(table.alter)`` and not a path of a module.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, is_typeddict

import click
import pyarrow as pa
from formatting import formatted

import refdelta
import refdelta.spark
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, open_catalog
from refdelta.catalog.transaction import CatalogTransaction
from refdelta.cli.app import app
from refdelta.expressions.functions import ALIASES, FUNCTIONS
from refdelta.expressions.sql_dialect import CAST_FUNCTIONS, CLOCKS, SHORTHANDS
from refdelta.table.properties import MS_PER_DAY, PROPERTIES, Property, parse_interval
from refdelta_storage.protocols import AZURE, GCS, S3, Option, UriScheme

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"

_HEAD = """# Reference

Written by `make generate NAME=reference` from the code; a test fails where it differs. This is the summary: the site
that `make docs` builds has a page for each class, with arguments, types, defaults, results, errors and examples, as
`help(refdelta.DeltaTable.merge)` shows them in Python.
"""


def page() -> str:
    """The whole page."""
    with _objects() as found:
        classes = {name: type(value) for name, value in found.items()}
        options = _Options([*classes.values(), DeltaTable], [write_deltalake])
        parts = [_functions()]
        parts.append(_class("DeltaTable", DeltaTable, "DeltaTable"))
        parts += [_class(name, classes[name], how) for name, how in _REACHED.items()]
        parts.append(_class("SqlCatalog", SqlCatalog, "refdelta.catalog.SqlCatalog(url, warehouse, ...)"))
        parts.append(_class("CatalogTransaction", CatalogTransaction, "catalog.transaction()"))
        parts.append(_class("UnityCatalog", UnityCatalog, "refdelta.catalog.UnityCatalog(url, token, ...)"))
        parts += [
            options.section(),
            _values(),
            _spark(),
            _errors(),
            _expressions(),
            _properties(),
            _storage_options(),
            _commands(),
        ]
    body = "\n".join(part for part in parts if part)
    titles = re.findall(r"^## (.*)$", body, re.MULTILINE)
    contents = " · ".join(f"[{title}](#{title.lower().replace(' ', '-')})" for title in titles)
    return formatted("\n".join([_HEAD, f"{contents}\n", body]))


def site_pages() -> Iterator[tuple[str, Sequence[str], str]]:
    """The pages that only the site has: public names with arguments, types, results, errors and examples, which
    mkdocstrings reads from the docstrings. A page has a title, and the sections of :func:`page` that it spells out.
    """
    with _objects() as found:
        classes = {"DeltaTable": DeltaTable, **{name: type(value) for name, value in found.items()}}
        for title, cls in classes.items():
            yield title, [title], _documented(cls, title, level=1)
    catalogs = [_documented(each) for each in (open_catalog, SqlCatalog, CatalogTransaction, UnityCatalog)]
    yield _page(
        "Catalogs", ["SqlCatalog", "CatalogTransaction", "UnityCatalog"], "`from refdelta.catalog import ...`", catalogs
    )
    where = "`from refdelta import ...`"
    # Their short sections would come before those of the functions that they await, where the site is searched.
    awaited = [name for name in _FUNCTIONS if name.endswith("_async")]
    plain = [name for name in _FUNCTIONS if name not in awaited]
    yield _page("Functions", ["Functions"], where, [_documented(getattr(refdelta, name), name) for name in plain])
    yield _page("Functions to await", [], where, [_documented(getattr(refdelta, name), name) for name in awaited])
    names = (*_OPTIONS, *_VALUES)
    values = [_documented(getattr(refdelta, name), name) for name in names]
    yield _page("Options and values", ["Values", *names], where, values)
    spark = [_documented(value, name) for name, value in _on_spark()]
    yield _page("Functions on Spark", ["On Spark"], "`import refdelta.spark`; the extra `spark`.", spark)
    details = (errors.ConflictDetails, errors.ConflictParty)
    kinds = [_documented(kind) for kind in (*_error_classes(), *details)]
    yield _page("Errors", ["Errors", *(kind.__name__ for kind in details)], "`from refdelta import errors`", kinds)


def _page(title: str, sections: Sequence[str], where: str, names: Iterable[str]) -> tuple[str, Sequence[str], str]:
    return title, sections, "\n".join([f"# {title}\n\n{where}\n", *names])


def _documented(found: Any, name: str = "", *, level: int = 2) -> str:
    """The directive for a function or a class, with the public methods of the class."""
    path = f"refdelta.{name}" if name in refdelta.__all__ else f"{found.__module__}.{found.__qualname__}"
    if path.startswith("refdelta.core.errors."):
        path = f"refdelta.errors.{found.__name__}"  # their public home
    own = [member for member, _, _ in _public(found)] if inspect.isclass(found) else []
    settings = {"heading": name or found.__name__, "heading_level": level, "members": own or False}
    return f"::: {path}\n    options: {json.dumps(settings)}\n"


# --- functions and classes ---

_REACHED = {
    "WriteTransaction": "table.begin()",
    "MergeBuilder": "table.merge(...)",
    "TableAlterer": "table.alter",
    "TableOptimizer": "table.optimize",
    "Scan": "table.scan()",
    "Timeline": "table.timeline()",
    "VersionDiff": "table.diff(before, after)",
    "Follower": "table.follow()",
    "GroupCommit": "table.group_commit()",
    "Explanation": "explain_conflict(table, a, b)",
}
_OPTIONS = ("CommitOptions", "StatementOptions")
_VALUES = (
    *(
        "AddAction",
        "AppTransaction",
        "Change",
        "CommitEvent",
        "CommitProperties",
        "CommitResult",
        "Identity",
        "RemoveAction",
    ),
    *("RowBudget", "Schema"),
)
_FUNCTIONS = (
    "write_deltalake",
    "write_deltalake_async",
    "convert_to_deltalake",
    "verify",
    "variants",
    "explain_conflict",
    "observe_commits",
    "settle",
    "sql",
    "instrument",
)


@contextmanager
def _objects() -> Iterator[dict[str, Any]]:
    """An object of each class that a table gives to its users."""
    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(f"{folder}/t", pa.table({"id": [1]}))
        table = DeltaTable(f"{folder}/t")
        merge = table.merge(pa.table({"id": [1]}), "t.id = s.id")
        with table.begin() as transaction:
            reached = [transaction, merge, table.alter, table.optimize, table.scan(), table.timeline(), table.diff(0)]
            write_deltalake(f"{folder}/t", pa.table({"id": [2]}), mode="append")
            reached += [table.follow(), table.group_commit(), refdelta.explain_conflict(table, 0, 1)]
            yield dict(zip(_REACHED, reached, strict=True))
        merge.when_matched_delete().execute()  # one that is dropped without it warns


def _functions() -> str:
    rows = [(f"`{name}{signature(getattr(refdelta, name))}`", first(getattr(refdelta, name))) for name in _FUNCTIONS]
    rows.append((f"`refdelta.catalog.open_catalog{signature(open_catalog)}`", first(open_catalog)))
    return _section("Functions", "`from refdelta import ...`", ("function", ""), rows)


def _class(title: str, cls: type, how: str) -> str:
    head = f"`{how}`: {first(cls)}" if title != "DeltaTable" else f"`{title}{signature(cls)}`: {first(cls)}"
    return _section(title, head, ("method", ""), _members(cls))


def _public(cls: type) -> Iterator[tuple[str, Any, Any]]:
    """The public methods and properties of a class: name, the member as it stands in the class, and its function."""
    for name, member in sorted(inspect.getmembers_static(cls)):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        plain = property(plain.func, doc=plain.__doc__) if isinstance(plain, cached_property) else plain
        function = plain.fget if isinstance(plain, property) else plain
        if inspect.isfunction(function) and function.__module__.startswith("refdelta") and name[0] != "_":
            yield name, member, plain


def _members(cls: type) -> Iterator[tuple[str, str]]:
    """The attributes that the docstring describes, the other fields, and the methods and properties."""
    described = dict(_attributes(cls)) if fields(cls) else {}
    for name in dict.fromkeys([*described, *fields(cls)]):
        yield f"`{name}`", described.get(name, "")
    for name, member, plain in _public(cls):
        if name in described:
            continue
        if isinstance(plain, property):
            yield f"`{name}`", first(plain)
        else:
            yield f"`{name}{signature(plain, method=not isinstance(member, staticmethod))}`", first(plain)


def fields(cls: type) -> list[str]:
    """The public fields of a dataclass or of a struct."""
    named = getattr(cls, "__struct_fields__", None) or getattr(cls, "__dataclass_fields__", ())
    return [name for name in named if name[0] != "_"]


def signature(found: Any, *, method: bool = False) -> str:
    """Names and defaults; types stand in the docstring."""
    parameters = list(inspect.signature(found).parameters.values())[method:]
    words: list[str] = []
    kinds = [parameter.kind for parameter in parameters]
    for number, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY} & {
            *kinds[:number]
        }:
            words.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        words.append(f"{star}{parameter.name}{default}")
    return f"({', '.join(words)})"


def _default(value: Any) -> str:
    return "..." if "<" in repr(value) else repr(value)


def first(found: Any) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    text = _cell((inspect.getdoc(found) or "").partition("\n\n")[0])
    sentence = re.match(r".*?\.(?= [A-Z]|$)", text)
    return sentence[0] if sentence else text


def _cell(text: str) -> str:
    """A docstring's text as a cell: references by their last name, that of a method with its class."""
    text = re.sub(r":\w+:`~?([\w.]+)`", lambda found: f"`{short(found[1])}`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def short(name: str) -> str:
    """The last part of a dotted name, after that of its class."""
    *_, before, last = ("", *name.split("."))
    return f"{before}.{last}" if before[:1].isupper() else last


class _Options:
    """The keyword arguments that signatures show as ``**options``: the fields of a TypedDict."""

    def __init__(self, classes: Iterable[type], functions: Iterable[Any]) -> None:
        plain = [inspect.unwrap(getattr(cls, name)) for cls in classes for name in dir(cls) if name[0] != "_"]
        self.found: dict[str, Any] = {}
        for function in filter(inspect.isfunction, [*plain, *functions]):
            for parameter in inspect.signature(function).parameters.values():
                named = re.fullmatch(r"(?:\w+\.)?Unpack\[(?:\w+\.)*(\w+)\]", str(parameter.annotation))
                if parameter.kind is parameter.VAR_KEYWORD and named:
                    # Where it is imported for type checkers only, it is found where it is defined.
                    places = (function.__globals__, *(vars(module) for module in list(sys.modules.values())))
                    self.found[named[1]] = next((names[named[1]] for names in places if named[1] in names), None)

    def section(self) -> str:
        parts = []
        for name, kind in sorted(self.found.items()):
            assert is_typeddict(kind), f"{name} is not found, or is no TypedDict"
            described = dict(_attributes(kind))
            rows = [(f"`{key}`", described.get(key, "")) for key in kind.__annotations__]
            parts.append(_section(name, f"`**options`: {first(kind)}", ("", ""), rows))
        return "\n".join(parts)


def _attributes(cls: type) -> Iterator[tuple[str, str]]:
    """The section "Attributes" of a docstring, or "Args"."""
    text = inspect.getdoc(cls) or ""
    block = re.search(r"^(?:Attributes|Args|Keyword Args):\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    for entry in re.split(r"^    (?=\w)", block[1] if block else "", flags=re.MULTILINE)[1:]:
        name, _, told = entry.partition(":")
        yield name, _cell(told)


def _values() -> str:
    parts = ["## Values\n\n`from refdelta import ...`\n"]
    for name in _VALUES:
        cls = getattr(refdelta, name)
        rows = list(_members(cls))
        head = f"`{name}{signature(cls)}`: {first(cls)}"
        parts.append(_section(name, head, ("attribute", ""), rows, level=3))
    return "\n".join(parts)


def _on_spark() -> list[tuple[str, Any]]:
    names = sorted(name for name in refdelta.spark.__all__ if not name.endswith("Error"))
    return [(name, getattr(refdelta.spark, name)) for name in names]


def _spark() -> str:
    rows = [(f"`{name}{signature(value)}`", first(value)) for name, value in _on_spark()]
    return _section("On Spark", "`import refdelta.spark`; the extra `spark`.", ("name", ""), rows)


# --- errors, properties, options, commands ---


def _error_classes() -> list[type]:
    """All of them; after each class, those under it, in the order of their definition."""

    def under(kind: type) -> Iterator[type]:
        yield kind
        for one in kind.__subclasses__():
            if one in public:
                yield from under(one)

    public = {kind for kind in vars(errors).values() if inspect.isclass(kind)}
    return list(dict.fromkeys(under(errors.DeltaError)))


def _errors() -> str:
    rows = []
    for kind in _error_classes():
        ours = [base.__name__ for base in kind.__bases__ if issubclass(base, errors.DeltaError)]
        builtin = [base.__name__ for base in kind.__bases__ if not issubclass(base, errors.DeltaError)]
        under = ", ".join(f"`{name}`" for name in ours + builtin if name != "Exception")
        attributes = ", ".join(f"`.{name}`" for name, _ in _attributes(kind))
        rows.append((f"`{kind.__name__}`", under, first(kind), attributes))
    details = [(f"`{name}`", told) for name, told in _attributes(errors.ConflictDetails)]
    parties = [(f"`{name}`", told) for name, told in _attributes(errors.ConflictParty)]
    return (
        _section("Errors", "`refdelta.errors`", ("class", "subclass of", "", "attributes"), rows)
        + "\n"
        + _section("ConflictDetails", "`error.conflict` of the six conflicts.", ("attribute", ""), details, level=3)
        + "\n"
        + _section(
            "ConflictParty", "`error.conflict.winner` and `error.conflict.own`.", ("attribute", ""), parties, level=3
        )
    )


# What each property does here. The others are kept in the table for engines that know them.
_EFFECTS = {
    "delta.appendOnly": "rows can be neither changed nor removed",
    "delta.autoOptimize": "compact after a write",
    "delta.autoOptimize.autoCompact": "compact after a write",
    "delta.checkpoint.writeStatsAsJson": "checkpoints have statistics as JSON",
    "delta.checkpoint.writeStatsAsStruct": "checkpoints have statistics and partition values as columns",
    "delta.checkpointInterval": "a checkpoint every so many versions; not set: [when it pays]"
    "(guide/maintenance.md#checkpoints-and-the-log)",
    "delta.checkpointPolicy": "the kind of checkpoint",
    "delta.columnMapping.mode": "[columns have physical names or ids](guide/schema.md#columns-that-change)",
    "delta.dataSkippingNumIndexedCols": "so many first columns have statistics; -1: all",
    "delta.dataSkippingStatsColumns": "the columns that have statistics, instead of the first ones",
    "delta.deletedFileRetentionDuration": "how long removed files are kept for older versions; the default of `vacuum`",
    "delta.dropFeatureTruncateHistory.retentionDuration": "the history that `truncate_history=True` keeps",
    "delta.enableChangeDataCapture": "the older name of `delta.enableChangeDataFeed`",
    "delta.enableChangeDataFeed": "[a feed of changed rows](guide/features.md#change-data-feed)",
    "delta.enableDeletionVectors": "[rows decide conflicts](guide/concurrent-writers.md#let-rows-decide-not-files)",
    "delta.enableExpiredLogCleanup": "a checkpoint removes expired log files",
    "delta.enableIcebergCompatV1": "[tables for readers of Iceberg](guide/features.md#tables-for-readers-of-iceberg)",
    "delta.enableIcebergCompatV2": "the same, version 2",
    "delta.enableInCommitTimestamps": "the time of a version is in its commit",
    "delta.enableMaterializePartitionColumnsFeature": "data files hold the partition columns",
    "delta.enableRowTracking": "[each row has an id](guide/features.md#row-tracking)",
    "delta.enableTypeWidening": "[columns can get wider types](guide/schema.md#columns-that-change)",
    "delta.isolationLevel": "[the isolation level](isolation-levels.md)",
    "delta.logRetentionDuration": "how long commits stay in the log",
    "delta.minReaderVersion": "at least this reader version in the protocol",
    "delta.minWriterVersion": "at least this writer version in the protocol",
    "delta.parquet.compression.codec": "how data files are compressed",
    "delta.parquet.format.version": "the version of Parquet of data files",
    "delta.setTransactionRetentionDuration": "how long versions of applications are remembered; not set: for ever",
    "delta.targetFileSize": "the size of data files that writes and compactions aim at",
    "delta.writePartitionColumnsToParquet": "data files hold the partition columns",
    "refdelta.inlineDeletionVectors": "small deletion vectors are in the log",
    "refdelta.logCompactionInterval": "a log compaction file every so many versions",
    "refdelta.recordPredicates": "[commits record predicates](guide/erasing-data.md#no-predicates-in-the-log)",
}


def _properties() -> str:
    text = (
        "Set by `configuration=` of `write_deltalake` and `DeltaTable.create`, or by `alter.set_table_properties`. "
        "Values are strings. `delta.constraints.NAME` holds a constraint; `delta.feature.NAME=supported` adds a "
        "feature. A `delta.*` name that does not exist is an error. Other names are your own."
    )
    rows = [(f"`{name}`", effect, *_kind(PROPERTIES[name.lower()])) for name, effect in _EFFECTS.items()]
    others = [row.name for row in PROPERTIES.values() if row.settable and row.name not in _EFFECTS]
    kept = f"Accepted, checked where other engines check them, and kept: {', '.join(f'`{name}`' for name in others)}.\n"
    return _section("Table properties", text, ("property", "effect", "value", "default"), rows) + "\n" + kept


def _kind(row: Property) -> tuple[str, str]:
    """The values that a property takes, from the message that refuses another one, and its default."""
    if row.read is parse_interval:
        days = "" if row.default is None else row.default // MS_PER_DAY
        return "an interval: `7 days`", days and f"`{days} day{'s' * (days > 1)}`"
    told = ""
    for wrong in ("`", str(-(2**62))):
        try:
            row.read(wrong)
        except ValueError as error:
            told = str(error).removeprefix("must be ")
    shown = str(row.default).lower() if isinstance(row.default, bool) else row.default
    return told or "a string", "" if shown in (None, "") else f"`{shown}`"


def _expressions() -> str:
    """The dialect of predicates and of assigned values."""
    families = {
        "functions": [name for name in FUNCTIONS if name.isidentifier() and name != "div"],
        "conditions": [*SHORTHANDS, "if"],
        "casts": CAST_FUNCTIONS,
        "the time at which the statement began": CLOCKS,
        "other names": [f"{alias} ({name})" for alias, name in ALIASES.items()],
    }
    rows = [
        ("literals", "`1`, `1L`, `1.5`, `1e3`, `'text'`, `true`, `null`, `DATE '2024-01-31'`, `TIMESTAMP '...'`"),
        ("columns", "`name`, `struct.field`, also named like a keyword; other characters in backticks"),
        ("operators", "`+ - * / % div \\|\\|`, `= <=> <> != < <= > >=`, `and`, `or`, `not`"),
        ("predicates", "`is null`, `in (...)`, `between`, `like`"),
        ("values", "`case when ... end`, `cast(... as type)`, `extract(... from ...)`"),
    ]
    rows += [(family, ", ".join(f"`{name}`" for name in sorted(names))) for family, names in families.items()]
    text = (
        "Predicates and assigned values are SQL in Spark's dialect with its ANSI errors. Single and double "
        "quotes both enclose strings. Subqueries, and everything else that is not supported, are refused by name and "
        "position."
    )
    return _section("SQL expressions", text, ("", ""), rows)


_PURPOSES = {
    "key": "the access key's id",
    "secret": "the access key's secret",
    "token": "the token of a session",
    "region_name": "the region",
    "endpoint_url": "the address of the service, if it is not Amazon's",
    "profile": "a profile of the AWS configuration",
    "anon": "requests without a signature",
    "addressing_style": "the bucket in the host name, not in the path",
    "read": "seconds without a byte of a reply; 15",
    "connect": "seconds to connect; 5",
    "retries": "how often a request that failed is sent again; 4",
    "total": "seconds after which nothing is sent again; 30",
    "refdelta allow_http": "allow an endpoint without TLS",
    "account_name": "the storage account",
    "account_key": "its key",
    "sas_token": "a shared access signature",
    "client_id": "the application",
    "client_secret": "its secret",
    "tenant_id": "the tenant",
    "connection_string": "all of this in one string",
    "account_host": "the address of the service, if it is not Azure's",
    "azure_storage_bearer_token": "a token that somebody else renews, as notebooks of Fabric have it",
    "azure_storage_use_azure_cli": "the login of the command `az`",
    "refdelta use_fabric_endpoint": "without a host in the URI: Fabric's, not that of the public cloud",
    "google_service_account": "a file with the credentials of a service account or a user",
    "google_service_account_key": "its content, as JSON",
    "google_skip_signature": "requests without a login",
    "google_base_url": "the address of the service, if it is not Google's",
}


def _storage_options() -> str:
    text = (
        "`storage_options={...}`, or `--storage-option NAME=VALUE`. Names are those of s3fs, adlfs and gcsfs, or those "
        "of deltalake; letter case does not matter. An unknown name is an error that lists the known ones.\n\n"
        "| store | option | meaning |\n|---|---|---|\n"
        "| local disk | `fsync` | sync files and folders before a write returns; `true` |\n"
        "| S3, Azure, Google | `client` | `fsspec` (s3fs, adlfs, gcsfs) or `obstore` ([stores](stores.md#obstore)) |\n"
        "| all others | `put_if_absent` | `true`: skip the probe; `false`: never write there ([stores](stores.md)) |"
    )
    parts = [f"## Storage options\n\n{text}\n"]
    for title, protocol in (("S3", S3), ("ADLS Gen2 and Azure Blob", AZURE), ("Google Cloud Storage", GCS)):
        text = "Credentials, the address of the service, and limits of time."
        parts.append(_section(title, text, ("option", "meaning"), _options(protocol), level=3))
    return "\n".join(parts)


def _options(protocol: UriScheme) -> Iterator[tuple[str, str]]:
    read = {name.lower() for name in protocol.environment}
    for option in protocol.options:
        if not option.target:
            continue
        own = (
            ""
            if (option.target == ("token",) and protocol is GCS) or option.target == ("credential",)
            else _fsspec_name(option)
        )  # of several kinds there
        names = list(dict.fromkeys(filter(None, (own, *option.names))))
        shown = ", ".join(f"`{name.upper() if name in read else name}`" for name in names)
        yield shown, _PURPOSES.get(option.names[0]) or _PURPOSES[option.target[-1]]


def _fsspec_name(option: Option) -> str:
    return option.target[0] if len(option.target) == 1 and " " not in option.target[0] else ""


def _commands() -> str:
    rows = []
    for name, command in sorted(app.commands.items()):
        inner = sorted(command.commands.items()) if isinstance(command, click.Group) else [("", command)]
        rows += [(f"`{f'refdelta {name} {word}'.strip()}`", one.get_short_help_str(200)) for word, one in inner]
    return _section("Commands", "`refdelta COMMAND --help` has the options of each.", ("command", ""), rows)


def _section(title: str, text: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, level: int = 2) -> str:
    lines = [f"{'#' * level} {title}", ""]
    lines += [text, ""] if text else []
    told = [f"| {' | '.join(row)} |" for row in rows]
    if told:
        lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *told]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    import functions_page

    PAGE.write_text(page())
    functions_page.PAGE.write_text(functions_page.page())
