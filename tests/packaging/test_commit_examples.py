"""The commits that ``docs/commit-protocol.md`` shows byte by byte are those that this engine writes."""

import json
import re
from pathlib import Path

import pytest

from by_path import loaded
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.conflicts.rules import Clear, Conflict, check
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log import claims
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.footprint import fold_commit
from refdelta.core.log.lean import LeanInfo
from refdelta.core.rows.deletion_vector import parse_bitmap, unframe
from refdelta.core.rows.relocation import recorded_relocations

wire = loaded(Path(__file__).parents[2] / ".ci/generate/commit_examples.py")
PAGE = wire.DOCUMENT.read_text()


def shown(name):
    return re.search(rf"<!-- wire: {name} -->\n\n```text\n(.*?)```", PAGE, re.DOTALL)[1]


def folded(name, version):
    return fold_commit(version, shown(name).encode(), name)


def test_the_page_shows_the_commits_that_the_engine_writes():
    assert wire.document(PAGE) == PAGE, "run make generate NAME=commit-protocol"


def test_the_fields_of_the_page_are_those_that_the_rules_read():
    _, wire_, _ = re.split(r"^## (?=10|11)", PAGE, flags=re.MULTILINE)
    named = set(re.findall(r"^\| `(\w+)` \|", wire_.partition("**`rowPlaces`**")[0], re.MULTILINE))
    assert named == set(LeanInfo.__struct_encode_fields__)


def test_the_append_is_blind_and_the_delete_has_read_what_it_deletes():
    append, delete = folded("append", 1), folded("delete", 2)
    assert append.blind
    assert append.read_version == 0
    assert not delete.blind
    assert delete.read_predicates == ("id = 3L",)
    assert delete.read_domains == frozenset()
    (add,) = delete.adds
    assert delete.only_hides(add)


def test_the_vector_of_the_delete_hides_the_row_at_place_two():
    data = bytes.fromhex(shown("vector"))
    add = json.loads(shown("delete").splitlines()[-1])["add"]["deletionVector"]
    rows = parse_bitmap(unframe(data[add["offset"] :], add["sizeInBytes"], "vector"), file="vector")
    assert [*rows] == [2]


def test_the_optimize_records_the_places_of_rows_as_it_has_read_them():
    optimize = folded("optimize", 3)
    assert optimize.moves_only
    first, second = recorded_relocations(optimize).values()
    assert (first.vector, first.copied, second.copied) == (None, 3, 3)
    removed, _ = optimize.removes
    assert removed.deletion_vector.cardinality == 1


def test_an_append_that_asked_for_serializable_is_passed_over_at_write_serializable():
    text = shown("append").replace('"WriteSerializable"', '"Serializable"')
    winner = fold_commit(1, text.encode(), "append")
    for level, verdict in ((IsolationLevel.WRITE_SERIALIZABLE, Clear), (IsolationLevel.SERIALIZABLE, Conflict)):
        state = TransactionState(
            ReadSet(version=0).with_everything(), [CommitInfo(fields={"operation": "UPDATE"})], level
        )
        assert isinstance(check(state, winner), verdict), level


@pytest.mark.parametrize("engine", [one for one in claims.Engine if one is not claims.Engine.REFDELTA])
def test_recorded_reads_are_believed_of_no_other_engine_as_the_page_says(engine):
    assert not claims.states_reads(engine)
    assert claims.states_version(engine) is (engine is claims.Engine.DELTA_SPARK)
