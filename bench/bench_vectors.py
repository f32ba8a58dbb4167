"""Rows of one file: what a commit does with deletion vectors behind a winner that changed the same file.

A file of ten million rows, of which a share is hidden. Two writers delete another share each, scattered and disjoint;
the second finds the first one's vector. refdelta's side is its own code for that, fed as a commit feeds it. The floor
is the same work as bare pyroaring does it, without looking at what it is given. All of it is warm, in memory or in the
page cache, and without fsync.
"""

from __future__ import annotations

import array
from dataclasses import dataclass

import numpy as np
import pytest
from contest import Engine, within
from pyroaring import BitMap64

from refdelta.core.log.actions import Add, DeletionVectorDescriptor
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import fold_commit
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.file_state import FileState, Revised, outcome
from refdelta.core.rows.relocation import Relocation, Span
from refdelta.core.rows.sets import any_of
from refdelta.engine.parquet.dv import load_deletion_vectors, write_vectors
from refdelta_storage import open_store

SHARES = [1, 10]
UNIT = {"units": 1, "goals": [within("floor", 1.5)]}


@dataclass(frozen=True)
class Rows:
    """What is known of the file: hidden before, what each of the two deletes, and its number of rows."""

    count: int
    hidden: BitMap64
    won: BitMap64
    own: BitMap64


def rows(count: int, share: int, seed: int) -> Rows:
    """Three disjoint sets of rows, each a share of the file in per cent."""
    each = count * share // 100
    chosen = np.random.default_rng(seed).permutation(count)[: 3 * each].astype(np.uint64)
    hidden, won, own = (BitMap64(np.sort(chosen[start : start + each])) for start in range(0, 3 * each, each))
    return Rows(count, hidden, won, own)


def file(count: int, vector: DeletionVectorDescriptor | None) -> Add:
    return Add(
        path="part-0.parquet",
        partition_values={},
        size=count * 10,
        modification_time=0,
        data_change=True,
        stats=f'{{"numRecords":{count}}}',
        deletion_vector=vector,
    )


def described(name: str, bitmap: BitMap64) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name * 20, offset=1, size_in_bytes=1, cardinality=len(bitmap)
    )


@pytest.mark.parametrize("share", SHARES)
def bench_rebase_of_a_vector(contest, size, share):
    """Are the rows disjoint, and which vector is the file to have?"""
    known = rows(size(smoke=100_000, default=10_000_000), share, contest.seed)
    after = known.hidden | known.won
    base, winning = described("a", known.hidden), described("b", after)
    winner_add = file(known.count, winning)
    winner = fold_commit(1, encode_commit([winner_add]), "1.json")
    held = FileState.of(None, RowDelete(file(known.count, base), known.hidden, known.own))
    expected = known.hidden | known.won | known.own

    def own() -> None:
        found = outcome("part-0.parquet", held, Revised(winner_add), winner, {winning.unique_id: after}, {})
        assert not any_of(found.lost)
        assert len(found.now["part-0.parquet"].hides) == len(expected)

    def floor() -> None:
        assert known.own.isdisjoint(after - known.hidden)
        assert len(after | known.own) == len(expected)

    engines = [Engine("refdelta", own), Engine("floor", floor, settings="pyroaring: -, isdisjoint, |")]
    contest.run(engines, rounds=11, **UNIT, **{"rows of the file": known.count, "% deleted by each": share})


@pytest.mark.parametrize("share", SHARES)
def bench_rebase_with_its_files(contest, size, share, folder):
    """The same, with the winner's vector read from its file, and the new one written to one."""
    known = rows(size(smoke=100_000, default=10_000_000), share, contest.seed)
    after = known.hidden | known.won
    after.run_optimize()
    store = open_store(str(folder), {"fsync": "false"})
    (winning,) = write_vectors(store, [after])
    plain, target = folder / "plain", folder / "target"
    plain.write_bytes(after.serialize())

    def own() -> BitMap64:
        (found,) = load_deletion_vectors(store, [winning])
        assert known.own.isdisjoint(found - known.hidden)
        now = found | known.own
        return write_vectors(store, [now])

    def floor() -> None:
        found = BitMap64.deserialize(plain.read_bytes())
        assert known.own.isdisjoint(found - known.hidden)
        now = found | known.own
        now.run_optimize()
        target.with_suffix(".tmp").write_bytes(now.serialize())
        target.with_suffix(".tmp").replace(target)

    note = "bytes are checked by refdelta: lengths, order of the containers, CRC-32"
    engines = [Engine("refdelta", own), Engine("floor", floor, settings="pyroaring, no checksum")]
    contest.run(engines, note=note, rounds=11, **UNIT, **{"rows of the file": known.count, "% deleted by each": share})


@pytest.mark.parametrize("share", SHARES)
def bench_remap_through_a_compaction(contest, size, share):
    """Where deleted rows are in the files that a compaction made of theirs, which left out rows hidden before.

    The floor takes both bitmaps apart, looks where the ones stand among the others, which pyroaring does for single
    rows only, and puts one bitmap together.
    """
    known = rows(size(smoke=100_000, default=10_000_000), share, contest.seed)
    live = known.count - len(known.hidden)
    quarters = [range(live)[live * n // 4 : live * (n + 1) // 4] for n in range(4)]
    spans = tuple(Span(f"out-{n}", part.start, len(part), 0) for n, part in enumerate(quarters))
    move = Relocation(described("a", known.hidden), spans)

    def own() -> None:
        found, lost = move.follow(known.own, known.hidden)
        assert lost == 0
        assert sum(map(len, found.values())) == len(known.own)

    def floor() -> None:
        moved, gone = (np.frombuffer(one.to_array(), np.uint64) for one in (known.own, known.hidden))
        numbers = moved - np.searchsorted(gone, moved).astype(np.uint64)
        assert len(bitmap_of(numbers)) == len(known.own)

    engines = [Engine("refdelta", own), Engine("floor", floor, settings="numpy and pyroaring")]
    contest.run(engines, rounds=11, **UNIT, **{"rows of the file": known.count, "% deleted by each": share})


def bitmap_of(numbers: np.ndarray) -> BitMap64:
    return BitMap64(array.array("Q", numbers.tobytes()))
