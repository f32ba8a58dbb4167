"""Actions to bytes and back, and bytes that no engine should have written.

Tests of core.log.actions, core.log.lean.
"""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log import codec, lean
from refdelta.core.log.actions import (
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refdelta.errors import InvalidLogError

FILE = "_delta_log/00000000000000000007.json"

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
strings = st.dictionaries(text, st.none() | text, max_size=2)
scalars = st.none() | st.booleans() | longs | text
# Names that no action of the specification has.
extras = st.none() | st.dictionaries(
    text.map("x-".__add__), scalars.filter(lambda v: v is not None), min_size=1, max_size=2
)
vectors = st.none() | st.builds(
    DeletionVectorDescriptor,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=text,
    offset=st.none() | ints,
    size_in_bytes=ints,
    cardinality=longs,
    max_row_index=st.none() | longs,
)
row_ids = {"base_row_id": st.none() | longs, "default_row_commit_version": st.none() | longs}
adds = st.builds(
    Add,
    extra=extras,
    path=text,
    partition_values=strings,
    size=longs,
    modification_time=longs,
    data_change=st.booleans(),
    stats=st.none() | text,
    tags=st.none() | strings,
    deletion_vector=vectors,
    clustering_provider=st.none() | text,
    **row_ids,
)
removes = st.builds(
    Remove,
    extra=extras,
    path=text,
    deletion_timestamp=st.none() | longs,
    data_change=st.none() | st.booleans(),
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | strings,
    size=st.none() | longs,
    stats=st.none() | text,
    tags=st.none() | strings,
    deletion_vector=vectors,
    **row_ids,
)
others = st.one_of(
    st.builds(Cdc, extra=extras, path=text, partition_values=strings, size=longs, data_change=st.booleans()),
    st.builds(
        Metadata,
        extra=extras,
        id=text,
        name=st.none() | text,
        format=st.none() | st.builds(Format),
        schema_string=text,
        partition_columns=st.lists(text, max_size=2),
        configuration=st.none() | st.dictionaries(text, text, max_size=2),
        created_time=st.none() | longs,
    ),
    st.builds(
        Protocol,
        extra=extras,
        min_reader_version=ints,
        min_writer_version=ints,
        reader_features=st.none() | st.lists(text, max_size=2),
        writer_features=st.none() | st.lists(text, max_size=2),
    ),
    st.builds(Txn, extra=extras, app_id=text, version=longs, last_updated=st.none() | longs),
    st.builds(DomainMetadata, extra=extras, domain=text, configuration=text, removed=st.booleans()),
    st.builds(Sidecar, extra=extras, path=text, size_in_bytes=longs, modification_time=longs),
    st.builds(CheckpointMetadata, extra=extras, version=longs, tags=st.none() | strings),
    st.builds(CommitInfo, st.dictionaries(text, scalars, max_size=3)),
)
actions = adds | removes | others


def add(**changes):
    fields = {"path": "f", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True, **changes}
    return json.dumps({"add": fields}).encode()


@given(st.lists(actions, min_size=1, max_size=6))
def test_round_trip(staged):
    data = codec.encode_commit(staged)
    assert data.endswith(b"\n")
    ordered = [a for a in staged if isinstance(a, CommitInfo)] + [a for a in staged if not isinstance(a, CommitInfo)]
    assert codec.decode_commit(data, FILE) == ordered
    assert codec.decode_commit(data[:-1], FILE) == ordered
    assert codec.decode_commit(data.replace(b"\n", b"\r\n \n"), FILE) == ordered
    # The standard library reads each line as one object with one key.
    assert [len(json.loads(line)) for line in data.splitlines()] == [1] * len(staged)


@given(st.lists(actions, min_size=1, max_size=6))
def test_the_fast_way_and_the_slow_way_agree(staged):
    data = codec.encode_commit(staged)
    assert codec.decode_commit(data, FILE) == codec._decode_slowly(data, FILE)


# What conflict checks do not look at.
PASSED_OVER = {
    Add: ("extra", "stats", "tags", "clustering_provider"),
    Remove: ("extra", "stats", "tags", "extended_file_metadata", "base_row_id", "default_row_commit_version"),
}


def needed(action):
    """A file's action without what is passed over, whether or not it was decoded with it."""
    kind = Add if isinstance(action, Add) else Remove
    fields = {name: getattr(action, name) for name in kind.__struct_fields__}
    return kind(**{**fields, **dict.fromkeys(PASSED_OVER[kind])})


@given(st.lists(actions, min_size=1, max_size=6))
def test_what_conflict_checks_need_agrees_with_the_commit(staged):
    staged = [a for a in staged if not isinstance(a, (Sidecar, CheckpointMetadata))] or [CommitInfo({})]
    data = codec.encode_commit(staged)
    whole, found = codec.decode_commit(data, FILE), lean.decode_lean(data, FILE)
    assert list(map(needed, found.adds)) == [needed(a) for a in whole if isinstance(a, Add)]
    assert list(map(needed, found.removes)) == [needed(a) for a in whole if isinstance(a, Remove)]
    assert found.others == [a for a in whole if not isinstance(a, (Add, Remove, CommitInfo))]
    infos = [a for a in whole if isinstance(a, CommitInfo)]
    assert found.infos == [lean.lean_info(info.fields) for info in infos]
    for add in found.adds:
        same = [a for a in whole if isinstance(a, Add) and a.path == add.path]
        assert lean.whole_add(data, FILE, add.path) == same[-1]


def test_conflict_checks_do_not_look_into_statistics():
    data = add(stats='{"numRecords":1}', tags={"a": "b"}, new=1) + b"\n"
    (action,) = lean.decode_lean(data, FILE).adds
    assert (action.path, action.size, action.modification_time, action.data_change) == ("f", 1, 2, True)
    assert action.stats is None
    assert action.tags is None
    assert lean.whole_add(data, FILE, "f").stats == '{"numRecords":1}'
    assert lean.whole_add(data, FILE, "g") is None


def test_an_add_is_found_however_its_path_is_spelled_and_wherever_else_it_stands():
    info = b'{"commitInfo":{"path":"\xc3\xa4/f"}}\n'
    for path in (b'"\xc3\xa4/f"', rb'"\u00e4\/f"'):
        data = info + add(path="?", stats="right").replace(b'"?"', path) + b"\n" + add(path="g", stats="\xe4/f")
        found = lean.whole_add(data + b'\n{"remove":{"path":' + path + b"}}", FILE, "\xe4/f")
        assert found.stats == "right"


def test_absent_and_null_are_the_same():
    (action,) = codec.decode_commit(add(stats=None, tags=None, deletionVector=None, unheardOf=None), FILE)
    assert action == Add(path="f", partition_values={}, size=1, modification_time=2, data_change=True)
    assert b"null" not in codec.encode_action(action)


def test_a_property_that_is_null_is_not_set():
    body = {"id": "i", "schemaString": "{}", "partitionColumns": [], "configuration": {"a": None, "b": "1"}}
    data = json.dumps({"metaData": body}).encode()
    for action in (*codec.decode_commit(data, FILE), *lean.decode_lean(data, FILE).others):
        assert action.configuration == {"b": "1"}


@pytest.mark.parametrize("schema", [{}, {"schemaString": None}])
def test_a_schema_that_is_not_set_has_no_fields(schema):
    data = json.dumps({"metaData": {"id": "i", "partitionColumns": [], **schema}}).encode()
    for action in (*codec.decode_commit(data, FILE), *lean.decode_lean(data, FILE).others):
        assert json.loads(action.schema_string) == {"type": "struct", "fields": []}


def test_unknown_fields_are_written_again():
    data = add(newField={"a": [1, 2.5]}, extra={"b": 1}, stats="{}")
    (action,) = codec.decode_commit(data, FILE)
    assert action.extra == {"newField": {"a": [1, 2.5]}, "extra": {"b": 1}}
    assert json.loads(codec.encode_action(action)) == json.loads(data)


def test_a_field_of_the_log_that_is_called_extra_stays_one():
    data = add(extra={"b": 1})
    (action,) = codec.decode_commit(data, FILE)
    assert action.extra == {"extra": {"b": 1}}
    assert json.loads(codec.encode_action(action)) == json.loads(data)


def test_unknown_actions_and_empty_objects_are_ignored():
    data = b'{"newAction":{"a":1}}\n{}\n' + add() + b'\n{"add":null}\n'
    assert [type(a) for a in codec.decode_commit(data, FILE)] == [Add]
    found = lean.decode_lean(data, FILE)
    assert ([a.path for a in found.adds], found.removes, found.others) == (["f"], [], [])
    assert codec.decode_commit(b'{"newAction":{"a":1}}', FILE) == []


def test_required_fields_are_written_even_if_empty():
    written = json.loads(
        codec.encode_action(Add(path="f", partition_values={}, size=0, modification_time=0, data_change=False))
    )
    assert written == {
        "add": {"path": "f", "partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": False}
    }
    written = json.loads(
        codec.encode_action(
            Metadata(id="i", format=Format(), schema_string="s", partition_columns=[], configuration={})
        )
    )
    assert written["metaData"]["format"] == {"provider": "parquet", "options": {}}
    assert written["metaData"]["partitionColumns"] == []
    assert written["metaData"]["configuration"] == {}


BAD = {
    "truncated": (add()[:-5], "not valid JSON"),
    "not JSON": (b"hello", "not valid JSON"),
    "not an object": (b"[1]", "Expected `object`"),
    "null": (b"null", "Expected `object`"),
    "trailing rubbish": (add() + b"}", "not valid JSON"),
    "two objects on a line": (add() + add(), "not valid JSON"),
    "two actions in an object": (b'{"txn":{"appId":"a","version":1},"remove":{"path":"x"}}', "txn, remove"),
    "not UTF-8": (add().replace(b'"f"', b'"\xff\xfe"'), "UTF-8"),
    "half a surrogate": (add().replace(b'"f"', b'"\\ud800"'), "not valid JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + add(), "not valid JSON"),
    "a field is missing": (b'{"add":{"path":"x"}}', "add: .*partitionValues"),
    "wrong type": (add(size="1"), "add: .*int.*size"),
    "a fraction": (add(size=1.5), "add: .*int.*size"),
    "null where required": (add(path=None), "add: .*path"),
    "too large": (add(size=2**63), "add: .*9223372036854775807.*size"),
    "far too large": (add(modificationTime=10**400), "modificationTime|not valid JSON"),
    "too large for 32 bits": (b'{"protocol":{"minReaderVersion":2147483648,"minWriterVersion":2}}', "minReaderVersion"),
    "action not an object": (b'{"add":1}', "object.*add"),
    "commitInfo not an object": (b'{"commitInfo":[]}', "object.*commitInfo"),
    "values not strings": (add(partitionValues={"a": 1}), "partitionValues"),
    "not a number": (b'{"commitInfo":{"a":NaN}}', "not valid JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lines_are_named(case):
    line, reason = BAD[case]
    data = b"\n".join([add(), b"", line, add()])
    with pytest.raises(InvalidLogError, match=reason) as caught:
        codec.decode_commit(data, FILE)
    assert (caught.value.file, caught.value.line) == (FILE, 3)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("case", sorted(BAD.keys() - {"two actions in an object"}))
def test_conflict_checks_name_them_too(case):
    with pytest.raises(InvalidLogError) as caught:
        lean.decode_lean(b"\n".join([add(stats="{}"), b"", BAD[case][0], add()]), FILE)
    assert caught.value.line == 3


class StackEnds:
    """A decoder whose stack ends in each line with commitInfo."""

    def __init__(self, decode):
        self.decoded = decode

    def __call__(self, line):
        if b"commitInfo" in line:
            raise RecursionError
        return self.decoded(line)

    decode = __call__

    def decode_lines(self, data):
        return [self(line) for line in data.split(b"\n") if line]


@pytest.mark.parametrize("decode", [codec.decode_commit, lean.decode_lean])
def test_a_line_in_which_the_stack_ends_is_named(decode, monkeypatch):
    for name in ("_LINE", "_LINES"):
        monkeypatch.setattr(codec, name, StackEnds(getattr(codec, name).decode))
    for name in ("_decode", "_decode_file_line"):
        monkeypatch.setattr(lean, name, StackEnds(getattr(lean, name)))
    data = b"\n".join([add(), add(), b'{"commitInfo":{"operation":"WRITE"}}', add()])
    with pytest.raises(InvalidLogError, match="nested too deeply") as caught:
        decode(data, FILE)
    assert (caught.value.file, caught.value.line) == (FILE, 3)


@pytest.mark.parametrize("data", [b"", b"\n", b"  \r\n\n"])
@pytest.mark.parametrize("decode", [codec.decode_commit, lean.decode_lean])
def test_an_empty_file_is_not_a_commit(data, decode):
    with pytest.raises(InvalidLogError, match="empty"):
        decode(data, FILE)


@given(st.lists(actions, min_size=1, max_size=3), st.data())
def test_a_commit_that_is_cut_off_is_refused(staged, data):
    whole = codec.encode_commit(staged)
    cut = data.draw(st.integers(1, len(whole) - 2))
    kept = whole[:cut]
    if kept.endswith(b"}") and whole[cut : cut + 1] == b"\n":
        return  # whole lines: what is lost then no reader can see
    if not kept.rpartition(b"\n")[2]:
        return
    with pytest.raises(InvalidLogError):
        codec.decode_commit(kept, FILE)


@given(st.binary(max_size=60))
def test_any_bytes_give_actions_or_our_error(data):
    for decode in (codec.decode_commit, lean.decode_lean):
        with contextlib.suppress(InvalidLogError):
            decode(data, FILE)


def test_decode_json_reports_as_a_commit_does():
    decoder = msgspec.json.Decoder(CheckpointMetadata)
    with pytest.raises(InvalidLogError, match=r"x\.crc: .*version"):
        codec.decode_json(b"{}", "x.crc", decoder)
    assert codec.decode_json(b'{"version":1}', "x.crc", decoder).version == 1
