"""``refdelta serve`` under the Rust client that comes with Delta Kernel: ``unity-catalog-delta-rest-client``, pinned.

Cargo builds the program of ``rust_client`` once, into the cache of the project, which takes minutes: ``make search
NAME=clients`` runs this, and no tier does.
"""

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.serving import TOKEN, serving
from refdelta import write_deltalake
from refdelta.catalog import UnityCatalog
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.transaction import background

pytestmark = [pytest.mark.tier("nightly"), pytest.mark.timeout(1200)]

SOURCE = Path(__file__).parent / "rust_client"
SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture(scope="session")
def program():
    """The program."""
    cargo = shutil.which("cargo")
    if cargo is None or not os.environ.get("REFDELTA_RUST"):
        pytest.skip("`make search NAME=clients` runs it; it needs cargo (https://rustup.rs)")
    target = Path(os.environ["REFDELTA_CACHE"]) / "rust_client"
    command = [cargo, "build", "-q", "--locked", "--manifest-path", str(SOURCE / "Cargo.toml")]
    done = subprocess.run([*command, "--target-dir", str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"cargo build failed: {done.stderr.strip()[-300:]}")
    return target / "debug" / "rust_client"


def test_it_commits_and_sees_conflicts(program, tmp_path):
    with serving(tmp_path, "--max-unpublished", "3") as served, UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table("main.sales.orders", SCHEMA, partition_by=None)
        write_deltalake(table, pa.table({"id": [1]}, SCHEMA), mode="append")
        background.settle()
        root = served.url.partition("/api/")[0]
        with subprocess.Popen([program, root, TOKEN], stdin=-1, stdout=-1, text=True) as process:

            def call(name, **arguments):
                process.stdin.write(json.dumps({"call": name, "table": "orders", **arguments}) + "\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            def commit(version, timestamp, **more):
                data = encode_commit([CommitInfo({"inCommitTimestamp": timestamp, "txnId": str(uuid.uuid4())})])
                name = f"{version:020d}.{uuid.uuid4()}.json"
                table.store.inner.put(f"_delta_log/_staged_commits/{name}", data)
                sizes = {"file-size": len(data), "file-modification-timestamp": timestamp}
                asked = {"version": version, "timestamp": timestamp, "file-name": name, **sizes}
                return update({"action": "add-commit", "commit": asked}, **more)

            def update(*updates, etag=None, table_id=None):
                requirements = [{"type": "assert-table-uuid", "uuid": table_id or loaded["metadata"]["table-uuid"]}]
                requirements += [{"type": "assert-etag", "etag": etag}] if etag else []
                return call("update", requirements=requirements, updates=list(updates))

            assert call("config")["ok"]["protocol-version"] == "1.0"
            loaded = call("load")["ok"]
            assert (loaded["latest-table-version"], loaded["commits"]) == (1, [])
            assert call("credentials") == {"ok": 0}
            assert "AlreadyExistsException" in call("stage")["error"]
            assert call("stage", table="new")["ok"]["required-protocol"]["min-writer-version"] == 7
            assert "not found" in call("load", table="nothing")["error"]
            now = loaded["metadata"]["updated-time"]
            for version in (2, 3, 4):
                assert commit(version, now + version) == {"ok": None}
                assert "CommitVersionConflictException" in commit(version, now + version)["error"]
            assert [one["version"] for one in call("load")["ok"]["commits"]] == [4, 3, 2]
            assert "ResourceExhaustedException" in commit(5, now + 5)["error"]
            catalog.publish("main.sales.orders")
            assert update({"action": "set-latest-backfilled-version", "latest-published-version": 4}) == {"ok": None}
            assert "UpdateRequirementConflict" in commit(5, now + 5, etag=loaded["metadata"]["etag"])["error"]
            assert "UpdateRequirementConflict" in commit(5, now + 5, table_id=str(uuid.uuid4()))["error"]
            assert commit(5, now + 5, etag=call("load")["ok"]["metadata"]["etag"]) == {"ok": None}
            histogram = {"sorted-bin-boundaries": [0], "file-counts": [0], "total-bytes": [0], "commit-version": 5}
            names = ("num-files-added", "num-bytes-added", "num-files-removed", "num-bytes-removed")
            report = {**dict.fromkeys(names, 0), "file-size-histogram": histogram}
            assert call("metrics", id=loaded["metadata"]["table-uuid"], report=report) == {"ok": None}
            process.stdin.close()
        assert process.returncode == 0
        seen = catalog.table("main.sales.orders")
        assert (seen.version(), seen.count()) == (5, 1)
        seen.delete("id = 1")
        background.settle()
