"""``refdelta serve`` under a client that was not written here: ``unitycatalog-client`` from PyPI."""

import fcntl
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.serving import TOKEN, serving
from refdelta import write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.transaction import background

pytestmark = pytest.mark.tier("test")

HERE = Path(__file__).parent
PINS = HERE / "unitycatalog_client.txt"
SCHEMA = pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string()), "by": pa.map_(pa.string(), pa.int64())})


@pytest.fixture(scope="session")
def packages():
    """The folder with the client and what it needs, installed into the cache of the project once."""
    cache = Path(os.environ["REFDELTA_CACHE"])
    folder = cache / "unitycatalog-client-0.7.0"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "unitycatalog-client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = folder.with_name(f"{folder.name}.new")
            command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
            done = subprocess.run(
                [*command, "--target", str(new), "-r", str(PINS)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                missing = f"unitycatalog-client cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
                (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
            new.rename(folder)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served"), "--max-unpublished", "3") as served:
        yield served


@pytest.fixture(scope="module")
def call(served, packages):
    process = subprocess.Popen(
        [sys.executable, "-S", str(HERE / "unitycatalog_program.py"), served.url, TOKEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(packages)},
    )

    def ask(method, **arguments):
        process.stdin.write(json.dumps([method, arguments]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return json.loads(line)

    yield ask
    process.stdin.close()
    assert process.wait(120) == 0, process.stderr.read()
    process.stdout.close()
    process.stderr.close()


@pytest.fixture
def catalog(served):
    with UnityCatalog(served.url, TOKEN) as catalog:
        yield catalog


@pytest.fixture
def name(request):
    return request.node.name


@pytest.fixture
def path(name):
    return {"catalog": "main", "var_schema": "sales", "table": name}


@pytest.fixture
def table(catalog, name):
    table = catalog.create_table(f"main.sales.{name}", SCHEMA)
    write_deltalake(table, pa.table({"id": [1], "tags": [["a"]], "by": [[("a", 1)]]}, SCHEMA), mode="append")
    background.settle()
    return table


def staged(table, version, timestamp):
    """Write a commit without files as any client would, and return what the API wants of it."""
    info = {"inCommitTimestamp": timestamp, "operation": "WRITE", "txnId": str(uuid.uuid4())}
    data = encode_commit([CommitInfo(info)])
    name = f"{version:020d}.{uuid.uuid4()}.json"
    table.store.inner.put(f"_delta_log/_staged_commits/{name}", data)
    sizes = {"file_size": len(data), "file_modification_timestamp": timestamp}
    return {"model": "DeltaCommit", "version": version, "timestamp": timestamp, "file_name": name, **sizes}


def request(table_id, commit, **more):
    requirements = [{"model": "DeltaAssertTableUUID", "type": "assert-table-uuid", "uuid": table_id}]
    if "etag" in more:
        requirements.append({"model": "DeltaAssertEtag", "type": "assert-etag", "etag": more["etag"]})
    updates = [{"model": "DeltaAddCommitUpdate", "action": "add-commit", "commit": commit}]
    return {"model": "DeltaUpdateTableRequest", "requirements": requirements, "updates": updates}


def test_it_loads_a_table(call, path, table):
    found = call("load_table", **path)["ok"]
    assert found["latest-table-version"] == 1
    assert found["metadata"]["location"] == table.table_uri
    assert found["metadata"]["properties"]["delta.feature.catalogManaged"] == "supported"
    assert call("table_exists", **path) == {"ok": None}
    missing = call("load_table", **{**path, "table": "nothing"})
    assert (missing["status"], missing["error"]["type"]) == (404, "NoSuchTableException")


def test_it_commits_and_sees_conflicts(call, served, catalog, path, name, table):
    catalog.publish(f"main.sales.{name}")
    loaded = call("load_table", **path)["ok"]["metadata"]
    now = loaded["updated-time"]
    first, second = (staged(table, 2, now + after) for after in (1, 2))
    ask = {"delta_update_table_request": request(loaded["table-uuid"], first, etag=loaded["etag"])}
    found = call("update_table", **path, **ask)
    assert found["ok"]["latest-table-version"] == 2
    assert [one["file-name"] for one in found["ok"]["commits"]] == [first["file_name"]]

    lost = call("update_table", **path, delta_update_table_request=request(loaded["table-uuid"], second))
    assert (lost["status"], lost["error"]["type"]) == (409, "CommitVersionConflictException")
    again = call("update_table", **path, delta_update_table_request=request(loaded["table-uuid"], first))
    assert again["ok"]["latest-table-version"] == 2
    old = request(loaded["table-uuid"], staged(table, 3, now + 3), etag=loaded["etag"])
    changed = call("update_table", **path, delta_update_table_request=old)
    assert (changed["status"], changed["error"]["type"]) == (409, "UpdateRequirementConflictException")
    other = request(str(uuid.uuid4()), staged(table, 3, now + 3))
    changed = call("update_table", **path, delta_update_table_request=other)
    assert (changed["status"], changed["error"]["type"]) == (409, "UpdateRequirementConflictException")

    # Readers and writers of the project go on from its commit.
    seen = catalog.table(f"main.sales.{name}")
    assert seen.version() == 2
    seen.delete("id = 1")
    with SqlCatalog(served.database) as behind:
        assert behind.table(f"main.sales.{name}").count() == 0
    background.settle()


def test_too_many_commits_are_not_published(call, served, catalog, path, name, table):
    catalog.publish(f"main.sales.{name}")
    loaded = call("load_table", **path)["ok"]["metadata"]
    for version in (2, 3, 4):
        commit = staged(table, version, loaded["updated-time"] + version)
        assert "ok" in call("update_table", **path, delta_update_table_request=request(loaded["table-uuid"], commit))
    commit = staged(table, 5, loaded["updated-time"] + 5)
    full = call("update_table", **path, delta_update_table_request=request(loaded["table-uuid"], commit))
    assert (full["status"], full["error"]["type"]) == (429, "ResourceExhaustedException")
    # The project's client publishes, and then commits.
    own = catalog.table(f"main.sales.{name}")
    assert own.delete("id = 1")["num_deleted_rows"] == 1
    background.settle()
    assert [one["version"] for one in own.history()] == [5, 4, 3, 2, 1, 0]
    assert own.store.inner.head("_delta_log/00000000000000000005.json").size


def test_it_renames_reports_and_deletes(call, catalog, path, table):
    metrics = {"model": "DeltaReportMetricsRequest", "table_id": table.store.ratifier.entry.table_id}
    assert call("report_metrics", **path, delta_report_metrics_request=metrics) == {"ok": None}
    new = {"model": "DeltaRenameTableRequest", "new_name": "bills"}
    assert call("rename_table", **path, delta_rename_table_request=new) == {"ok": None}
    assert "main.sales.bills" in catalog.tables()
    assert call("delete_table", **{**path, "table": "bills"}) == {"ok": None}
    assert call("table_exists", **{**path, "table": "bills"})["status"] == 404


def test_it_makes_a_staging_table(call, catalog):
    wanted = {"model": "DeltaCreateStagingTableRequest", "name": "planned"}
    found = call("create_staging_table", catalog="main", var_schema="sales", delta_create_staging_table_request=wanted)
    assert found["ok"]["required-properties"]["io.unitycatalog.tableId"] == found["ok"]["table-id"]
    assert "catalogManaged" in found["ok"]["required-protocol"]["writer-features"]
    assert "main.sales.planned" not in catalog.tables()
