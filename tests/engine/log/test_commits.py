"""Commits of many adds, decoded straight to columns: as the codec has them, or left to it."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import PROTOCOL, Handmade, add, field, lines, metadata, remove, struct
from refdelta.core.log.actions import Add
from refdelta.core.log.codec import decode_commit
from refdelta.engine.log import commits as commits_module
from refdelta.engine.log import snapshot
from refdelta.engine.log.commits import decode_to_columns
from refdelta.engine.log.state import adds_table
from refdelta.errors import InvalidLogError
from tiers import examples

KEYS = ["a.json", "b.json", "c.json"]
PLAIN = add("f", partitionValues={"p": "1"})
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
NAMES = st.lists(st.sampled_from(["p", "q", "ä b", 'with "quotes"', "path"]), unique=True, max_size=3)


def by_the_codec(contents):
    commits = [decode_commit(data, key) for key, data in zip(KEYS, contents, strict=False)]
    adds = [action for commit in commits for action in commit if isinstance(action, Add)]
    return [[action for action in commit if not isinstance(action, Add)] for commit in commits], adds_table(adds)


def as_codec(contents):
    others, adds = by_the_codec(contents)
    found = decode_to_columns(KEYS[: len(contents)], contents)
    assert found is not None
    assert found[0] == others
    assert found[1].equals(adds)
    found[1].validate(full=True)


@st.composite
def commits(draw):
    names = draw(NAMES)
    # In one order: that of a map means nothing.
    files = st.fixed_dictionaries(
        {
            "path": TEXTS.filter(bool),
            "partitionValues": st.tuples(*(st.none() | TEXTS for _ in names)).map(
                lambda row: dict(zip(names, row, strict=True))
            ),
            "size": st.integers(0, 2**63 - 1),
            "modificationTime": st.integers(-(2**63), 2**63 - 1),
            "dataChange": st.booleans(),
        },
        optional={
            "stats": st.none() | TEXTS,
            "tags": st.none(),
            "baseRowId": st.none() | st.integers(0, 9),
            "defaultRowCommitVersion": st.integers(0, 9),
            "clusteringProvider": TEXTS,
        },
    )
    some = draw(st.lists(st.lists(files, min_size=1, max_size=4), min_size=1, max_size=3))
    others = st.lists(st.sampled_from([PROTOCOL, {"commitInfo": {"operation": "WRITE", "x": '{"add":{'}}]), max_size=2)
    return [lines(*draw(others), *({"add": one} for one in commit)) for commit in some]


@examples(60)
@given(commits())
def test_adds_are_what_the_codec_makes_of_them(contents):
    others, adds = by_the_codec(contents)
    found = decode_to_columns(KEYS[: len(contents)], contents)
    if found is not None:
        assert found[0] == others
        assert found[1].equals(adds)


@pytest.mark.parametrize(
    "actions",
    [
        [PLAIN, add("ä", rows=3, partitionValues={"p": None})],
        [add("f"), add("g", rows=1)],
        [add(f"f{i}", partitionValues={"p": str(i), "q": None, "r": "x"}) for i in range(9)],
        [PROTOCOL, metadata(struct(field("x", "long"))), PLAIN],
        [PLAIN | {"add": PLAIN["add"] | {"tags": None, "deletionVector": None, "baseRowId": 7}}],
    ],
)
def test_many_adds_are_decoded_here(actions):
    as_codec([lines(*actions)])
    as_codec([lines(*actions), lines(PROTOCOL), lines(*actions)[:-1]])


TEXT = json.dumps(PLAIN, separators=(",", ":"))
LEFT = {
    "a remove": lines(PLAIN, remove("g")).decode(),
    "a remove before": lines(remove("g"), PLAIN).decode(),
    "an action behind": lines(PLAIN, PROTOCOL).decode(),
    "a tag": TEXT.replace('"size"', '"tags":{"a":"b"},"size"'),
    "an unknown field": TEXT.replace('"size"', '"new":1,"size"'),
    "an unknown action": TEXT[:-1] + ',"new":{}}',
    "a deletion vector": TEXT.replace('"size"', '"deletionVector":{"storageType":"u"},"size"'),
    "another partition column": TEXT + "\n" + TEXT.replace('"p"', '"q"'),
    "a partition value that is missing": TEXT + "\n" + TEXT.replace('"p":"1"', ""),
    "two on a line": TEXT + TEXT,
    "one on two lines": TEXT.replace('"add":', '"add":\n'),
    "two on a line and one on two": TEXT + TEXT + "\n" + TEXT.replace('{"add":', '{"add":\n'),
    "a blank line": TEXT + "\n\n" + TEXT,
    "a space in front": " " + TEXT,
    "no path": TEXT.replace('"path":"f",', ""),
    "a number with a point": TEXT.replace('"size":', '"size":1.5e0,"s":'),
    "a number that is too large": TEXT.replace('"size":', '"size":9223372036854775808,"s":'),
    "a null": '{"add":null}',
    "cut off": TEXT[:-5],
    "a field that is there twice": TEXT.replace('"path":"f"', '"path":"f","path":"g"'),
    "no text": TEXT.replace('"path":"f"', '"path":5'),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_is_otherwise_is_left_to_the_codec(what):
    assert decode_to_columns(KEYS[:2], [lines(PLAIN), LEFT[what].encode()]) is None


def test_texts_that_are_not_utf8_are_left_to_the_codec():
    assert decode_to_columns(KEYS[:1], [TEXT.encode().replace(b'"f"', b'"\xff"')]) is None


def test_what_stands_before_the_adds_is_told_with_its_line():
    with pytest.raises(InvalidLogError) as caught:
        decode_to_columns(KEYS[:1], [lines(PROTOCOL) + b'{"txn":{}}\n' + lines(PLAIN)])
    assert (caught.value.file, caught.value.line) == (KEYS[0], 2)


@pytest.mark.parametrize("behind_a_checkpoint", [False, True])
@pytest.mark.parametrize("at_once", [0, 2**15])
def test_a_log_is_the_same_either_way(monkeypatch, behind_a_checkpoint, at_once):
    table = Handmade(struct(field("x", "long")))
    if behind_a_checkpoint:
        table.checkpoint(0, [PROTOCOL, metadata(struct(field("x", "long"))), *(add(f"f{i}", size=7) for i in range(9))])
    for first in range(0, 60, 4):
        table.commit(
            {"commitInfo": {"operation": "WRITE", "n": first}}, *(add(f"f{i}") for i in range(first, first + 7))
        )
        if first % 20 == 8:
            table.commit(remove(f"f{first}"), add(f"f{first - 1}", rows=first))
        if first % 20 == 12:
            table.commit(add("again", size=first), add("again", size=first + 1))
    monkeypatch.setattr(snapshot, "_MANY_FILES", at_once)
    monkeypatch.setattr(snapshot, "_READ_BYTES", 2000)
    wanted = snapshot.load_snapshot(table.store)
    taken = []
    monkeypatch.setattr(
        "refdelta.engine.log.commits.decode_to_columns",
        lambda *given: taken.append(decode_to_columns(*given)) or taken[-1],
    )
    monkeypatch.setattr("refdelta.engine.log.commits._MANY_BYTES", 0)
    found = snapshot.load_snapshot(table.store)
    assert None in taken
    assert any(isinstance(one, tuple) for one in taken)
    assert found.files.combine_chunks().equals(wanted.files.combine_chunks())
    assert found.commit_info == wanted.commit_info
    assert json.loads(found.metadata.schema_string) == struct(field("x", "long"))
    assert pa.compute.count_distinct(found.files["path"]).as_py() == found.num_files


def test_parts_of_long_commits_are_parsed_at_the_same_time(monkeypatch):
    """Each of two parts waits for the other; their files stay in order."""
    together, parse = threading.Barrier(2, timeout=120), commits_module._adds
    monkeypatch.setattr(commits_module, "_adds", lambda part: (together.wait(), parse(part))[1])
    contents = [lines(*(add(f"{commit}-{file}") for file in range(20))) for commit in range(2)]
    monkeypatch.setattr(commits_module, "_BLOCK", max(map(len, contents)) + 1)
    as_codec(contents)
