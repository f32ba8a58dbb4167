"""The claims of deltalake in its commits, and the conclusions from them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from refdelta.core.log.claims import Engine
from refdelta.core.log.footprint import fold_commit

deltalake = pytest.importorskip("deltalake")


@pytest.fixture(scope="module")
def commits(tmp_path_factory):
    """The footprint of each operation, by its name."""
    path = str(tmp_path_factory.mktemp("claims") / "t")

    def rows(*values):
        return pa.table({"a": pa.array(values, pa.int64())})

    deltalake.write_deltalake(path, rows(1, 2))
    deltalake.write_deltalake(path, rows(3), mode="append")
    table = deltalake.DeltaTable(path)
    table.optimize.compact()
    table.delete("a = 1")
    table.update({"a": "5"}, predicate="a = 2")
    merge = table.merge(rows(9), "t.a = s.a", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()
    deltalake.write_deltalake(path, rows(4), mode="overwrite")
    deltalake.DeltaTable(path).restore(1)
    names = ("create", "append", "optimize", "delete", "update", "merge", "overwrite", "restore")
    found = {}
    for version, name in enumerate(names):
        data = Path(path, "_delta_log", f"{version:020d}.json").read_bytes()
        found[name] = fold_commit(version, data, name)
    return found


def test_it_names_itself(commits):
    assert {one.engine for one in commits.values()} == {Engine.DELTA_RS}


def test_none_of_its_commits_is_a_blind_append(commits):
    assert not any(one.says_blind_append or one.blind for one in commits.values())


def test_its_compactions_move_rows_and_its_statements_do_not(commits):
    assert {name for name, one in commits.items() if one.moves_only} == {"optimize"}
    assert {name for name, one in commits.items() if one.rearranges} == {"optimize"}
    assert all(one.new_rows for name, one in commits.items() if name != "optimize")


def test_it_records_neither_reads_nor_places_nor_a_level(commits):
    for one in commits.values():
        assert (one.read_predicates, one.read_domains, one.row_places, one.level, one.txn_id) == (None,) * 5


def test_it_records_the_version_that_it_read_for_statements_alone(commits):
    assert {name for name, one in commits.items() if one.read_version is not None} == {
        *("optimize", "delete", "update", "merge", "restore")
    }
