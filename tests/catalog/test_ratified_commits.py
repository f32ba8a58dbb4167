"""A server ratifies only what readers open: honest commits with one value changed are refused, or can be read.

Tests of catalog.service, engine.log.proposed_commit.
"""

import copy
import json
import random
import uuid

import pyarrow as pa
import pytest
import sqlalchemy as sa

from catalog.asking import Application
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog, service
from refdelta.catalog.sql import TABLES, SqlRatifier
from refdelta.core.log.paths import commit_key
from refdelta.transaction import background
from refdelta_storage import StorageError
from tiers import budget

NAME = "main.sales.orders"
TABLE = "/delta/v1/catalogs/main/schemas/sales/tables/orders"
SCHEMA = pa.schema({"id": pa.int64(), "town": pa.string(), "day": pa.date32()})
GONE = object()
VALUES = [
    GONE, None, True, -1, 0, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**400, 1.5, "", "x", "\0", "..", "../../x", "%zz",
    "/elsewhere/x", "file:///elsewhere/x", "s3://other/x", "true", "-1", "99999999999999999999", "zzz", "[[[[", [], {},
    [None], ["zzz"], {"a": None}, {"a": 1}, [[]], "2026-13-45", "interval 1 century", "long", "decimal(99,1)", "id",
    "town",
]  # fmt: skip


class Proposed(Application):
    """A table of a catalog, commits that are honest and not ratified, and a server."""

    def __init__(self, folder, monkeypatch):
        self.url, self.folder = f"sqlite:///{folder}/catalog.db", folder
        self.monkeypatch = monkeypatch
        with SqlCatalog(self.url, str(folder / "warehouse")) as catalog:
            table = catalog.create_table(
                NAME, SCHEMA, partition_by=["town", "day"], configuration={"delta.enableChangeDataFeed": "true"}
            )
            rows = pa.table({"id": range(6), "town": ["Oslo", "Moss"] * 3, "day": [20_000] * 6}, SCHEMA)
            write_deltalake(table, rows, mode="append")
            self.inner, self.table_id = table.store.inner, table.store.ratifier._entry.table_id
            self.commits = {name: self.kept(change) for name, change in CHANGES.items()}
            with catalog._database.connect() as connection:
                self.row = connection.execute(sa.select(TABLES)).one()
        self.opened()

    def opened(self):
        """A server that knows nothing yet."""
        self.catalog = service.open_served(self.url, str(self.folder / "warehouse"), None)
        super().__init__(self.catalog)

    def kept(self, change):
        """The content of the commit that a change would make."""
        kept = []

        def propose(commit):
            kept.append(self.inner.get(f"_delta_log/_staged_commits/{commit.file_name}"))
            raise StorageError("this was only asked for")

        with SqlCatalog(self.url) as catalog:
            table = catalog.table(NAME)
            self.monkeypatch.setattr(table.store.ratifier, "propose", propose)
            with pytest.raises(errors.DeltaError, match="only asked for"):
                change(table)
        return [json.loads(line) for line in kept[0].splitlines()]

    def proposed(self, lines):
        """The status of the answer to a commit, and whether it was ratified."""
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        name = f"{2:020d}.{uuid.uuid4()}.json"
        self.inner.put(f"_delta_log/_staged_commits/{name}", data)
        infos = [line.get("commitInfo") for line in lines if isinstance(line, dict)]
        stamp = next((info.get("inCommitTimestamp") for info in infos if isinstance(info, dict)), None)
        stamp = stamp if type(stamp) is int and 0 < stamp < 2**63 else 1
        commit = {"version": 2, "timestamp": stamp, "file-name": name, "file-size": len(data)}
        update = {"action": "add-commit", "commit": {**commit, "file-modification-timestamp": 1}}
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": self.table_id}], "updates": [update]}
        status, answer = self.ask("POST", TABLE, json.dumps(body).encode())
        with self.catalog._database.connect() as connection:
            latest = connection.execute(sa.select(TABLES.c.latest)).scalar_one()
        return status, answer, latest != self.row.latest

    def taken_back(self):
        """Forget the commit that was ratified, and all after it."""
        with self.catalog._database.begin() as connection:
            connection.execute(sa.update(TABLES).values(latest=self.row.latest, published=self.row.published))
            connection.execute(sa.text("DELETE FROM refdelta_commits WHERE version > 1"))
        self.inner.delete(list(self.inner.list_keys("_delta_log/0", after=commit_key(1) + "~")))
        self.catalog.close()
        self.opened()

    def unread(self):
        """The reason for which a program that opens the table cannot use it; None if it can."""
        try:
            with SqlCatalog(self.url) as catalog:
                table = catalog.table(NAME)
                schema = pa.schema(table.schema())
                table.history(3)
                table.files()
                try:
                    table.to_pyarrow_table()
                    for one in schema.names:
                        table.count(f"`{one.replace('`', '``')}` is not null")
                    table.load_cdf(2).read_all()
                except errors.DataFileError:
                    pass  # another writer of the folder could remove or change files, too
                table.alter.set_table_properties({"note": "mine"})
                write_deltalake(table, pa.table([pa.nulls(1, one.type) for one in schema], schema), mode="append")
        except errors.ConstraintViolationError:
            return None
        except errors.UnsupportedFeatureError as error:
            if "CHECK constraint" in str(error):
                return None  # another engine may know its functions
            return f"{type(error).__name__}: {str(error)[:150]}"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
        return None


def _updated(table):
    table.update({"id": "id + 10"}, predicate="id = 1")


def _overwritten(table):
    rows = pa.table({"id": ["a"], "where": ["Oslo"]})
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["where"])


CHANGES = {
    "append": lambda table: write_deltalake(table, pa.table({"id": [7], "town": ["Oslo"]}), mode="append"),
    "application": lambda table: write_deltalake(
        table, pa.table({"id": [7], "town": ["Oslo"]}), mode="append", app_id="a", app_version=3
    ),
    "delete": lambda table: table.delete("id = 2"),
    "delete of a partition": lambda table: table.delete("town = 'Oslo'"),
    "update": _updated,
    "new column": lambda table: table.alter.add_columns(pa.schema({"price": pa.decimal128(10, 2)})),
    "property": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"}),
    "constraint": lambda table: table.alter.add_constraint({"small": "id < 1000"}),
    "new type": _overwritten,
}


def places(value, path=()):
    """The paths of all values in a commit, also in JSON within its strings."""
    yield path
    inner = inside(value)
    for key, one in inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ():
        yield from places(one, (*path, key))


def inside(value):
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


def changed(value, path, new):
    if not path:
        return new
    inner = copy.copy(inside(value))
    key, *rest = path
    one = changed(inner[key], rest, new)
    if one is GONE:
        del inner[key]
    else:
        inner[key] = one
    return json.dumps(inner) if isinstance(value, str) else inner


def mutants(lines):
    """Each commit that differs in one value, and some that differ by a line."""
    for path in places(lines):
        if path:
            yield from ((f"{'.'.join(map(str, path))} = {new!r:.40}", path, new) for new in VALUES)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "run", lambda *_, **__: True)
        yield Proposed(tmp_path_factory.mktemp("served"), patch)


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_ratified_can_be_read(table, name):
    lines = table.commits[name]
    assert table.proposed(lines)[2]
    assert table.unread() is None
    table.taken_back()
    found, bad, ratified = list(mutants(lines)), [], 0
    for what, path, new in random.Random(42).sample(found, min(budget(200), len(found))):
        status, answer, was_ratified = table.proposed(changed(lines, path, new))
        if status >= 500:
            bad.append(f"{what}: {status}, ratified: {was_ratified}: {answer[:100]}")
        if was_ratified:
            ratified += 1
            reason = table.unread()
            if reason is not None:
                bad.append(f"{what}: {status}, ratified, and then {reason}")
            table.taken_back()
    print(f"{name}: {ratified} ratified, {len(bad)} bad, {len(found)} possible")
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad)


def _of(lines, kind, **fields):
    """The commit with other fields in its first action of a kind."""
    at = next(at for at, line in enumerate(lines) if kind in line)
    return [*lines[:at], {kind: {**lines[at][kind], **fields}}, *lines[at + 1 :]]


def _schema(lines, change):
    fields = json.loads(next(line["metaData"]["schemaString"] for line in lines if "metaData" in line))["fields"]
    change(fields)
    return _of(lines, "metaData", schemaString=json.dumps({"type": "struct", "fields": fields}))


def _property(lines, name, value):
    found = next(line["metaData"]["configuration"] for line in lines if "metaData" in line)
    return _of(lines, "metaData", configuration={**found, name: value})


def _named(number, **changes):
    return lambda fields: fields[number].update(changes)


RULES = "refdelta.engine.log"
VECTOR = {"storageType": "z", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
POISONS = {
    "a property that is not valid": (
        f"{RULES}.snapshot.Snapshot.check_usable",
        lambda commits: _property(commits["property"], "delta.logRetentionDuration", "zzz"),
    ),
    "two columns of a name": (
        "refdelta.table.column_mapping.check_distinct",
        lambda commits: _schema(commits["new column"], _named(3, name="id")),
    ),
    "a name in which row ids are kept": (
        f"{RULES}.snapshot.named_columns",
        lambda commits: _property(commits["property"], "delta.rowTracking.materializedRowIdColumnName", "id"),
    ),
    "a partition value of another type": (
        f"{RULES}.proposed_commit._check_value",
        lambda commits: _of(commits["append"], "add", partitionValues={"town": "Oslo", "day": "x"}),
    ),
    "files whose partition values stay": (
        f"{RULES}.proposed_commit._check_kept_files",
        lambda commits: _schema(commits["property"], _named(1, type="long")),
    ),
    "a path outside": (
        f"{RULES}.proposed_commit.data_key",
        lambda commits: _of(commits["append"], "add", path="file:///elsewhere/x"),
    ),
    "a vector of no kind": (
        f"{RULES}.proposed_commit._check_vector",
        lambda commits: _of(commits["append"], "add", deletionVector=VECTOR),
    ),
    "a constraint of a column that is not there": (
        "refdelta.catalog.service.RowRules.after",
        lambda commits: _property(commits["constraint"], "delta.constraints.small", "zzz < 5"),
    ),
    "two actions for one path": (
        f"{RULES}.proposed_commit.validate_commit",
        lambda commits: [*commits["append"], next(line for line in commits["append"] if "add" in line)],
    ),
    "a time that ends the table": (
        "refdelta.catalog.service._check_time",
        lambda commits: _of(commits["append"], "commitInfo", inCommitTimestamp=2**63 - 1),
    ),
}
READ_ALL_THE_SAME = ("two actions for one path",)


@pytest.mark.tier("test")
@pytest.mark.parametrize("what", POISONS)
def test_each_rule_is_needed(table, what, monkeypatch):
    """It is refused, nothing has changed, and without the rule it would be a version that programs cannot use."""
    rule, make = POISONS[what]
    lines = make(table.commits)
    status, answer, was_ratified = table.proposed(lines)
    assert (status, was_ratified) == (400, False), answer
    assert json.loads(answer)["error"]["type"] == "InvalidParameterValueException"
    with monkeypatch.context() as patch:
        patch.setattr(rule, lambda *_, **__: None)
        assert table.proposed(lines)[2]
    try:
        assert (table.unread() is None) == (what in READ_ALL_THE_SAME)
    finally:
        table.taken_back()


@pytest.mark.parametrize("columns", [["town", "town"], ["town", "TOWN"], ["town", "zzz"], ["town", ""]])
def test_partition_columns_are_in_the_schema_and_once(table, columns):
    status, answer, was_ratified = table.proposed(_of(table.commits["property"], "metaData", partitionColumns=columns))
    assert (status, was_ratified) == (400, False)
    assert b"partition column" in answer


def test_row_ids_do_not_go_back(table):
    lines = table.commits["append"]
    mark = next(line["domainMetadata"] for line in lines if "domainMetadata" in line)
    for number, ratified in ((json.loads(mark["configuration"])["rowIdHighWaterMark"], True), (1, False), (-1, False)):
        lower = _of(lines, "domainMetadata", configuration=json.dumps({"rowIdHighWaterMark": number}))
        assert table.proposed(lower)[2] == ratified
        if ratified:
            table.taken_back()


def test_a_failure_after_the_ratification_is_no_error(table, monkeypatch):
    """The answer is there before: neither the database nor the store is asked again."""
    propose, calls = SqlRatifier.propose, []

    def proposed(self, commit):
        found = propose(self, commit)
        calls.append(commit.version)
        for name in ("row", "_reading", "log_of", "store_of"):
            monkeypatch.setattr(table.catalog, name, None)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SqlRatifier, "propose", proposed)
        status, answer, was_ratified = table.proposed(table.commits["append"])
    monkeypatch.undo()
    try:
        assert (status, was_ratified, calls) == (200, True, [2])
        found = json.loads(answer)
        assert found["latest-table-version"] == 2
        assert [one["version"] for one in found["commits"]] == [2, 1]
        assert found == json.loads(table.ask("GET", TABLE)[1]), "as the table is loaded afterwards"
    finally:
        table.taken_back()
