"""``refdelta optimize``, ``vacuum`` and ``restore``: what they do, what they say, and what a dry run leaves.

Tests of cli.maintaining.
"""

import os
import pty
import subprocess
import sys

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.api.table_transaction import TableTransaction
from refdelta.cli import maintaining
from refdelta.transaction.results import CommitResult
from written_tables import ids_of

NOW = ("--retention-hours", 0, "--no-enforce-retention-duration")


@pytest.fixture
def small(tmp_path):
    """A table with deletion vectors: four files of five rows, and one row of each deleted, in version 4."""
    path = tmp_path / "small"
    for number in range(4):
        rows = pa.table({"id": range(number * 5, number * 5 + 5), "day": ["ab"[number % 2]] * 5})
        write_deltalake(
            path, rows, mode="append", partition_by=["day"], configuration={"delta.enableDeletionVectors": "true"}
        )
    DeltaTable(path).delete("id % 5 = 0")
    return path


def files(path):
    return sorted(path.rglob("*"))


def test_optimize_puts_small_files_together(cli, small):
    before = ids_of(small)
    result = cli("optimize", small, "--message", "nightly")
    assert result.out.startswith("version 5: 4 files of ")
    assert " rewritten as 2 of " in result.out
    assert (ids_of(small), DeltaTable(small).detail()["num_files"]) == (before, 2)
    newest = cli("history", small, "--limit", 1, "--json").json[0]
    assert (newest["operation"], newest["userMetadata"]) == ("OPTIMIZE", "nightly")
    assert cli("optimize", small).out == "no file is worth rewriting: nothing was written\n"


def test_optimize_runs_again_after_a_conflict_as_often_as_it_may(cli, small, monkeypatch):
    commit, lost = TableTransaction.commit, []

    def beaten_once(txn, *arguments, **options):
        if not lost:
            lost.append(True)
            DeltaTable(small).delete("true")
        return commit(txn, *arguments, **options)

    monkeypatch.setattr(TableTransaction, "commit", beaten_once)
    failed = cli("optimize", small, "--z-order-by", "id")
    assert failed.status == 1
    assert "another writer removed files" in failed.err
    lost.clear()
    write_deltalake(small, pa.table({"id": [1], "day": ["a"]}), mode="append")
    second = cli("optimize", small, "--z-order-by", "id", "--attempts", "2")
    assert second.status == 0
    assert second.err.startswith("refdelta: z_order sorts rows"), "a warning is one line, as an error"
    assert second.err.count("\n") == 1


def test_optimize_of_some_partitions_and_sizes(cli, small):
    found = cli("optimize", small, "--where", "day = 'a'", "--target-size", "1mb", "--tasks", 1, "--json").json
    assert (found["version"], found["numFilesRemoved"], found["numFilesAdded"]) == (5, 2, 1)
    add = next(action["add"] for action in cli("log", small, "--json").json if "add" in action)
    assert add["tags"]["OPTIMIZE_TARGET_SIZE"] == str(2**20)
    few = cli("optimize", small, "--where", "day = 'b'", "--min-file-size", 1, "--dry-run", "--json").json
    assert sum(len(one["files"]) for one in few["bins"]) == 2, "large enough, but a row in five of them is deleted"


def test_optimize_sorts_rows(cli, small):
    found = cli("optimize", small, "--z-order-by", "id", "--json").json
    assert (found["numFilesAdded"], found["preserveInsertionOrder"]) == (2, False)
    assert cli("history", small, "--limit", 1, "--json").json[0]["operationParameters"]["zOrderBy"] == '["id"]'


def test_optimize_purges_deleted_rows(cli, small):
    before = ids_of(small)
    assert cli("detail", small, "--json").json["num_deletion_vectors"] == 4
    assert cli("optimize", small, "--purge").out.startswith("version 5: 4 files of ")
    assert cli("history", small, "--limit", 1, "--json").json[0]["operation"] == "REORG"
    assert cli("detail", small, "--json").json["num_deletion_vectors"] == 0
    assert ids_of(small) == before


def test_optimize_clusters_a_clustered_table(cli, tmp_path):
    for number in range(3):
        rows = pa.table({"id": range(number, 30, 3), "n": range(10)})
        write_deltalake(tmp_path, rows, mode="append", cluster_by=["n", "id"])
    would = cli("optimize", tmp_path, "--cluster", "--dry-run", "--json").json
    assert [len(one["files"]) for one in would["bins"]] == [3]
    assert cli("optimize", tmp_path, "--cluster").out.startswith("version 3: 3 files of ")
    assert cli("optimize", tmp_path, "--cluster").out == "no file is worth rewriting: nothing was written\n"
    assert cli("optimize", tmp_path, "--cluster", "--full", "--json").json["version"] is None
    assert cli("history", tmp_path, "--limit", 1, "--json").json[0]["operationParameters"]["clusterBy"] == '["n","id"]'
    assert ids_of(tmp_path) == list(range(30))


@pytest.mark.parametrize(
    ("options", "count", "bins"),
    [((), 4, 2), (("--where", "day = 'b'"), 2, 1), (("--z-order-by", "id"), 4, 2), (("--purge",), 4, 2)],
)
def test_a_dry_run_of_optimize_names_files_and_writes_nothing(cli, small, options, count, bins):
    before = files(small)
    result = cli("optimize", small, *options, "--dry-run")
    considered = 2 if "--where" in options else 4
    assert result.out.startswith(f"version 4 would have {count} of {considered} files rewritten, ")
    assert f" in {bins} bin{'s' * (bins > 1)}; nothing was done\n" in result.out
    assert result.out.count("\n  ") == count
    found = cli("optimize", small, *options, "--dry-run", "--json").json
    assert (found["dry_run"], found["read_version"], len(found["bins"])) == (True, 4, bins)
    assert all((small / name).is_file() for one in found["bins"] for name in one["files"])
    assert files(small) == before


def test_optimize_says_when_others_were_quicker():
    lost = CommitResult(None, attempts=1)
    assert maintaining._rewritten(lost, 1.0) == "others have rewritten these files meanwhile: nothing was written"


def test_vacuum_only_says_what_would_go_unless_told(cli, small):
    cli("optimize", small)
    before = files(small)
    assert cli("vacuum", small).out == "there is no file that can be removed\n"
    result = cli("vacuum", small, *NOW)
    assert result.out.startswith("5 files of ")
    assert " would be removed; nothing was done, --no-dry-run removes them\n" in result.out
    assert result.out.count("\n  ") == 5
    found = cli("vacuum", small, *NOW, "--json").json
    assert (found["dry_run"], found["version"], len(found["files"])) == (True, None, 5)
    assert found["size_bytes"] == sum((small / name).stat().st_size for name in found["files"])
    assert files(small) == before


def test_vacuum_removes(cli, small):
    cli("optimize", small)
    rows = ids_of(small)
    going = cli("vacuum", small, *NOW, "--json").json["files"]
    result = cli("vacuum", small, *NOW, "--no-dry-run", "--message", "weekly")
    assert result.out.startswith("version 7: 5 files of ")
    assert not any((small / name).exists() for name in going)
    assert ids_of(small) == rows
    commits = cli("history", small, "--limit", 2, "--json").json
    assert [commit["operation"] for commit in commits] == ["VACUUM END", "VACUUM START"]
    assert [commit["userMetadata"] for commit in commits] == ["weekly", "weekly"]
    assert cli("vacuum", small, *NOW, "--no-dry-run", "--json").json["version"] is None


def test_vacuum_keeps_versions_and_tells_what_the_log_does_not_name(cli, small):
    cli("optimize", small)
    assert cli("vacuum", small, *NOW, "--keep-versions", "0, 5", "--json").json["files"]
    assert len(cli("vacuum", small, *NOW, "--keep-versions", "0,5", "--json").json["files"]) == 4
    (small / "note.txt").touch()
    assert cli("vacuum", small, *NOW).out.endswith("\n1 file more that the log does not name: --full takes them too\n")
    assert "note.txt" in cli("vacuum", small, *NOW, "--full").out


def test_restore_to_a_version_and_a_time(cli, small):
    result = cli("restore", small, "--version", 1, "--message", "back")
    assert result.out.startswith("version 5: 2 files restored, 4 removed, ")
    assert ids_of(small) == list(range(10))
    assert cli("history", small, "--limit", 1, "--json").json[0]["userMetadata"] == "back"
    assert cli("restore", small, "--version", 1).out == "the table is so already: nothing was written\n"
    for version in range(6):
        at = 1_800_000_000 + version * 60
        os.utime(small / "_delta_log" / f"{version:020}.json", (at, at))
    for checksum in (small / "_delta_log").glob("*.crc"):
        checksum.unlink()
    found = cli("restore", small, "--version", "2027-01-15T08:02:30Z", "--json").json
    assert (found["version"], found["num_of_files_after_restore"]) == (6, 3)


def test_restore_where_files_are_gone(cli, fails, small):
    cli("optimize", small)
    gone = cli("files", small, "--version", 0, "--json").json[0]["path"]
    (small / gone).unlink()
    assert gone in fails("restore", small, "--version", 3)
    assert cli("restore", small, "--version", 3, "--ignore-missing-files").out.startswith("version 6: 3 files restored")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("optimize", "--purge", "--z-order-by", "id"), "exclude each other"),
        (("optimize", "--purge", "--min-file-size", "1"), "--min-file-size"),
        (("optimize", "--cluster", "--z-order-by", "id"), "exclude each other"),
        (("optimize", "--cluster", "--where", "day = 'a'"), "no partitions"),
        (("optimize", "--full"), "--full goes with --cluster"),
        (("optimize", "--cluster"), "no clustering columns"),
        (("optimize", "--z-order-by", "town"), "town"),
        (("optimize", "--z-order-by", "day"), "partition column"),
        (("optimize", "--z-order-by", ""), "at least one column"),
        (("optimize", "--where", "id = 1"), "partition columns are: day"),
        (("optimize", "--where", "id = 1", "--dry-run"), "partition columns are: day"),
        (("optimize", "--target-size", "big"), "'big': it must be a size"),
        (("optimize", "--target-size", "0"), "'0': it must be a size"),
        (("optimize", "--tasks", "0"), "--tasks"),
        (("vacuum", "--retention-hours", "1"), "below the 168 hours"),
        (("vacuum", "--retention-hours", "-1"), "--retention-hours"),
        (("vacuum", "--keep-versions", "1,x"), "'x' is no version"),
        (("vacuum", "--keep-versions", "77"), "77"),
        (("restore",), "--version"),
        (("restore", "--version", "77"), "77"),
        (("restore", "--version", "-1"), "-1"),
        (("restore", "--version", "yesterday"), "yesterday"),
        (("restore", "--version", "1", "--isolation", "chaos"), "chaos"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(fails, small, arguments, said):
    command, *options = arguments
    before = files(small)
    assert said in fails(command, small, *options)
    assert files(small) == before


@pytest.mark.tier("test")
def test_progress_is_shown_on_a_terminal_only(small):
    command = [sys.executable, "-m", "refdelta", "optimize", small]
    ours, terminal = pty.openpty()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    out, _ = running.communicate(timeout=120)
    seen = os.read(ours, 65536)
    os.close(ours)
    assert b"1 of 2 bins are rewritten" in seen
    assert out.startswith(b"version 5: ")
    DeltaTable(small).restore(4, commit_properties=CommitProperties())
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert done.stderr == b""


def test_errors_name_options_and_not_arguments_of_python(fails, table):
    line = fails("vacuum", table, "--retention-hours", "0", "--no-dry-run")
    assert "--retention-hours 0.0 is below the 168 hours" in line
    assert "pass --no-enforce-retention-duration" in line
    assert "retention_hours" not in line
