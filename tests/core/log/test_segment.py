"""Which files make a version, against a model that enumerates; and the hint at the newest checkpoint."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log import paths, segment
from refdelta.core.log.checksum import canonical_json, json_checksum
from refdelta.core.log.segment import (
    CheckpointFiles,
    LastCheckpoint,
    LogFile,
    build_segment,
    encode_last_checkpoint,
    parse_last_checkpoint,
)
from refdelta.errors import DeltaError, InvalidLogError, VersionNotFoundError

UUIDS = [f"{n:08d}-0000-4000-8000-000000000000" for n in range(3)]


def listing(*keys):
    return [(key, 10, 1000) for key in keys]


def commits(*versions):
    return listing(*map(paths.commit_key, versions))


def part(version, number, parts):
    return f"_delta_log/{version:020d}.checkpoint.{number:010d}.{parts:010d}.parquet"


def v2(version, uuid=0, ext="parquet"):
    return f"_delta_log/{version:020d}.checkpoint.{UUIDS[uuid]}.{ext}"


def shape(segment):
    """The segment in short: version, checkpoint's version and keys, what covers the rest."""
    checkpoint = segment.checkpoint and (segment.checkpoint.version, [f.key for f in segment.checkpoint.files])
    return segment.version, checkpoint, [(f.version, f.hi) for f in segment.commits]


# --- cases -------------------------------------------------------------------------------------------------------


def test_commits_alone():
    segment = build_segment(commits(2, 0, 1))
    assert shape(segment) == (2, None, [(0, 0), (1, 1), (2, 2)])
    assert segment.last_commit == LogFile(paths.commit_key(2), 10, 1000, 2, 2)
    assert segment.checksum is None


def test_no_log_is_none():
    assert build_segment([]) is None
    others = [paths.last_checkpoint_key(), paths.checksum_key(0), "_delta_log/_sidecars/x.parquet", "data.parquet"]
    assert build_segment(listing(*others, part(3, 1, 2))) is None


def test_the_newest_complete_checkpoint_is_used():
    files = commits(*range(7)) + listing(paths.checkpoint_key(2), part(4, 1, 2), part(4, 2, 2), part(6, 1, 2))
    segment = build_segment(files)
    assert shape(segment) == (6, (4, [part(4, 1, 2), part(4, 2, 2)]), [(5, 5), (6, 6)])
    assert segment.checkpoint.kind == "multipart"
    assert shape(build_segment(files, version=3))[1] == (2, [paths.checkpoint_key(2)])


def test_sets_of_parts_are_not_mixed():
    files = commits(0, 1, 2) + listing(part(2, 1, 2), part(2, 2, 3), part(2, 3, 3))
    assert build_segment(files).checkpoint is None


def test_several_checkpoints_at_one_version():
    files = listing(part(1, 1, 1), paths.checkpoint_key(1), v2(1, 1), v2(1, 0, "json"))
    order = []
    for _ in files:
        segment = build_segment(files + commits(0, 1), unreadable=order)
        order += [f.key for f in segment.checkpoint.files]
    assert order == [v2(1, 0, "json"), v2(1, 1), paths.checkpoint_key(1), part(1, 1, 1)]
    # None is left: the commits alone are the table.
    assert shape(build_segment(files + commits(0, 1), unreadable=order)) == (1, None, [(0, 0), (1, 1)])


def test_only_checkpoint_files():
    segment = build_segment(listing(paths.checkpoint_key(5)))
    assert shape(segment) == (5, (5, [paths.checkpoint_key(5)]), [])
    assert segment.last_commit is None


def test_a_checkpoint_ahead_of_the_commits_that_are_listed():
    assert shape(build_segment(commits(0, 1, 2) + listing(paths.checkpoint_key(4))))[0] == 4
    with pytest.raises(InvalidLogError, match="version 3 is missing"):
        build_segment(commits(0, 1, 2) + listing(paths.checkpoint_key(4)), version=3)


def test_commits_before_the_checkpoint_do_not_matter():
    segment = build_segment(commits(0, 3, 4) + listing(paths.checkpoint_key(3)))
    assert shape(segment) == (4, (3, [paths.checkpoint_key(3)]), [(4, 4)])


def test_a_gap_names_the_version_and_its_file():
    with pytest.raises(InvalidLogError, match="version 2 is missing") as caught:
        build_segment(commits(0, 1, 3, 4))
    assert caught.value.file == paths.commit_key(2)
    assert build_segment(commits(0, 1, 3, 4), version=1).version == 1
    with pytest.raises(InvalidLogError, match="version 2 is missing"):
        build_segment(commits(0, 1, 3, 4), version=2)
    with pytest.raises(InvalidLogError, match="version 4 is missing after the checkpoint at version 3"):
        build_segment(commits(3, 5) + listing(paths.checkpoint_key(3)))
    with pytest.raises(InvalidLogError, match="version 0 is missing"):
        build_segment(commits(5, 6))


def test_versions_that_are_not_there():
    for version in (3, -1, 2**63):
        with pytest.raises(VersionNotFoundError, match="newest is 2"):
            build_segment(commits(0, 1, 2), version=version)
    with pytest.raises(VersionNotFoundError, match="version 4 is not kept any more; the oldest that can be read is 6"):
        build_segment(commits(5, 6, 7) + listing(paths.checkpoint_key(6)), version=4)
    with pytest.raises(VersionNotFoundError, match="not kept"):
        build_segment(commits(4, 5, 6) + listing(paths.checkpoint_key(6)), version=5)


def test_compacted_commits_are_used_where_they_fit():
    files = commits(*range(8)) + listing(
        paths.compacted_key(1, 2), paths.compacted_key(1, 4), paths.compacted_key(3, 6), paths.compacted_key(5, 9)
    )
    # Of two that fit, the first of a listing, as delta-spark takes it.
    assert shape(build_segment(files))[2] == [(0, 0), (1, 2), (3, 6), (7, 7)]
    assert shape(build_segment(files, version=5))[2] == [(0, 0), (1, 2), (3, 3), (4, 4), (5, 5)]
    assert shape(build_segment(files, version=3))[2] == [(0, 0), (1, 2), (3, 3)]
    assert shape(build_segment(files, use_compacted=False))[2] == [(v, v) for v in range(8)]
    with_checkpoint = files + listing(paths.checkpoint_key(2))
    assert shape(build_segment(with_checkpoint))[2] == [(3, 6), (7, 7)]


def test_a_compacted_file_does_not_fill_a_gap():
    with pytest.raises(InvalidLogError, match="version 1 is missing"):
        build_segment(commits(0, 2) + listing(paths.compacted_key(0, 2)))


def test_staged_commits_and_strangers_are_passed_over():
    strangers = listing(
        f"_delta_log/_staged_commits/{3:020d}.{UUIDS[0]}.json",
        f"_delta_log/.{3:020d}.json.crc",
        f"_delta_log/{3:020d}.json.tmp",
    )
    assert build_segment(commits(0, 1, 2) + strangers).version == 2


def test_the_checksum_is_that_of_the_version():
    files = commits(0, 1) + listing(paths.checksum_key(0))
    assert build_segment(files).checksum is None
    assert build_segment(files, version=0).checksum.key == paths.checksum_key(0)


# --- against a model ---------------------------------------------------------------------------------------------

small = st.integers(0, 7)
log_files = st.one_of(
    small.map(paths.commit_key),
    small.map(paths.checkpoint_key),
    small.map(paths.checksum_key),
    st.builds(v2, small, st.integers(0, 1), st.sampled_from(["json", "parquet"])),
    st.integers(1, 3).flatmap(lambda n: st.builds(part, small, st.integers(1, n), st.just(n))),
    st.tuples(small, small).filter(lambda p: p[0] < p[1]).map(lambda p: paths.compacted_key(*p)),
)
# Mostly whole logs, so that what goes wrong does so for one reason.
logs = st.builds(
    lambda last, missing, more: ({paths.commit_key(v) for v in range(last + 1)} - missing) | more,
    small,
    st.sets(small.map(paths.commit_key), max_size=1),
    st.sets(log_files, max_size=8),
)


def complete_checkpoints(keys):
    found = []
    for version in range(8):
        found += [(version, {key}) for key in keys if key == paths.checkpoint_key(version)]
        found += [
            (version, {key}) for key in keys if key in {v2(version, u, e) for u in (0, 1) for e in ("json", "parquet")}
        ]
        for parts in (1, 2, 3):
            wanted = {part(version, number, parts) for number in range(1, parts + 1)}
            if wanted <= keys:
                found.append((version, wanted))
    return found


@given(logs, st.none() | st.integers(0, 8), st.booleans(), st.randoms(use_true_random=False))
def test_against_the_model(keys, version, use_compacted, order: random.Random):
    files = listing(*sorted(keys))
    order.shuffle(files)
    there = {v for v in range(8) if paths.commit_key(v) in keys}
    checkpoints = complete_checkpoints(keys)
    reachable = there | {v for v, _ in checkpoints}
    wanted = version if version is not None else max(reachable, default=-1)
    newest = max((v for v, _ in checkpoints if v <= wanted), default=-1)
    missing = sorted(set(range(newest + 1, wanted + 1)) - there)
    if reachable and (wanted > max(reachable) or missing):
        with pytest.raises(DeltaError) as caught:
            build_segment(files, version=version, use_compacted=use_compacted)
        if isinstance(caught.value, InvalidLogError):
            assert f"version {missing[0]} is missing" in str(caught.value)
        else:
            assert isinstance(caught.value, VersionNotFoundError)
            assert wanted > max(reachable) or (missing[0] == 0 and newest == -1)
        return
    segment = build_segment(files, version=version, use_compacted=use_compacted)
    if segment is None:
        assert not reachable
        return
    assert segment.version == wanted
    if newest < 0:
        assert segment.checkpoint is None
    else:
        assert isinstance(segment.checkpoint, CheckpointFiles)
        assert (segment.checkpoint.version, {f.key for f in segment.checkpoint.files}) in checkpoints
        assert segment.checkpoint.version == newest
    # Every version after the checkpoint is covered once, in order, by files that are there.
    covered = [v for f in segment.commits for v in range(f.version, f.hi + 1)]
    assert covered == list(range(newest + 1, wanted + 1))
    assert {f.key for f in segment.commits} <= keys
    assert use_compacted or all(f.version == f.hi for f in segment.commits)
    assert (segment.checksum is not None) == (paths.checksum_key(wanted) in keys)
    assert (segment.last_commit is not None) == (wanted in there)


# --- _last_checkpoint --------------------------------------------------------------------------------------------

SPEC_JSON = (
    b'{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", '
    b'"k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)


def test_the_checksum_of_the_specification():
    assert canonical_json(SPEC_JSON).startswith('"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,')
    assert json_checksum(SPEC_JSON) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_the_checksum_of_a_hint_with_a_long_list_as_delta_spark_sorts_it():
    lines = ['"k"+0="v0"', '"k"+10="v10"', '"k"+1="v1"', *(f'"k"+{n}="v{n}"' for n in range(2, 10)), '"size"=1']
    theirs = hashlib.md5(",".join([*lines, '"version"=3']).encode(), usedforsecurity=False).hexdigest()
    plain = {"version": 3, "size": 1, "k": [f"v{n}" for n in range(11)]}
    ours = json_checksum(json.dumps(plain).encode())
    assert ours != theirs
    for checksum, holds in ((ours, True), (theirs, True), ("0" * 32, False)):
        hint = parse_last_checkpoint(json.dumps({**plain, "checksum": checksum}).encode())
        assert (hint is not None) is holds


def test_canonical_forms():
    assert (
        canonical_json(b'{"b":{"y":null,"x":"https://delta.io"},"a":10}')
        == '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null'
    )
    assert canonical_json(b'{"n":[1.50,1E3,-0,true,false]}') == '"n"+0=1.50,"n"+1=1E3,"n"+2=-0,"n"+3=true,"n"+4=false'
    assert canonical_json('{"k":"a€+~"}'.encode()) == '"k"="a%E2%82%AC%2B~"'
    assert canonical_json(b'{"a":{},"b":[]}') == ""
    for bad in (b'{"a":1,"a":2}', b"[1]", b'{"a":{"b":1,"b":1}}', b"{"):
        with pytest.raises(ValueError, match=r".*"):
            json_checksum(bad)


hints = st.builds(
    LastCheckpoint,
    version=st.integers(0, 2**63 - 1),
    size=st.integers(0, 2**63 - 1),
    parts=st.none() | st.integers(1, 99),
    size_in_bytes=st.none() | st.integers(0, 2**40),
    num_of_add_files=st.none() | st.integers(0, 2**40),
    checkpoint_schema=st.none() | st.just({"type": "struct", "fields": [{"name": "ä b", "nullable": True}]}),
    tags=st.none()
    | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])), max_size=2
    ),
)


@given(hints, st.data())
def test_the_hint_round_trips_and_a_changed_one_is_not_believed(hint, data):
    encoded = encode_last_checkpoint(hint)
    assert parse_last_checkpoint(encoded) == hint
    # Another order of keys is the same object.
    fields = json.loads(encoded)
    shuffled = dict(data.draw(st.permutations(list(fields.items()))))
    assert parse_last_checkpoint(json.dumps(shuffled).encode()) == hint
    assert parse_last_checkpoint(json.dumps({**fields, "version": hint.version ^ 1}).encode()) is None
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert parse_last_checkpoint(encoded[:cut]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"version":-1,"size":1}',
        b'{"version":"3","size":1}',
        b'{"version":3.5,"size":1}',
        b'{"version":99999999999999999999,"size":1}',
        b'{"version":3,"version":4,"size":1}',
        b'{"version":3,"size":1,"checksum":"00"}',
        b'{"version":3,"size":1,"checksum":7}',
        b'{"version":3,"size":' + b"9" * 40 + b"}",
    ],
)
def test_a_corrupt_hint_is_no_hint(data):
    assert parse_last_checkpoint(data) is None


def test_a_hint_in_which_the_stack_ends_is_no_hint(monkeypatch):
    data = b'{"version":3,"size":1}'
    assert parse_last_checkpoint(data) is not None

    def parse(text, **options):
        raise RecursionError

    monkeypatch.setattr(segment.json, "loads", parse)
    assert parse_last_checkpoint(data) is None


def test_old_hints_are_read():
    hint = parse_last_checkpoint(b'{"version":10,"size":13,"parts":null,"size_in_bytes":5}\n')
    assert hint == LastCheckpoint(version=10, size=13)
