"""Tasks over threads: order, bounds, errors, and leaving early."""

from __future__ import annotations

import itertools
import threading
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.engine.work import executor
from refdelta.engine.work.executor import ThreadExecutor, grouped, sharing
from tiers import examples


@given(st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=12), st.integers(1, 4), st.integers(1, 60))
@examples(60)
def test_streams_keep_the_order_of_tasks_and_of_results(tasks, workers, budget):
    found = list(ThreadExecutor(workers).stream(iter, tasks, weigh=lambda item: item, budget=budget))
    assert found == [item for task in tasks for item in task]


def test_map_keeps_the_order():
    assert list(ThreadExecutor(3).map(lambda x: x * x, range(50))) == [x * x for x in range(50)]


def test_map_does_not_run_far_ahead():
    begun = []
    results = ThreadExecutor(2).map(lambda x: begun.append(x) or x, range(1000))
    assert next(results) == 0
    results.close()
    assert len(begun) <= 5


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", ["map", "stream"])
def test_tasks_that_decode_much_share_the_memory(many, seed, monkeypatch):
    """The first task gets what it needs; the others only what is left, and all of them end."""
    monkeypatch.setattr(executor, "DECODED_BYTES", 100)
    monkeypatch.setattr(executor, "CORE_DECODED_BYTES", 0)
    random = Random(seed)
    needs = [[random.choice([1, 30, 60, 100, 500]) for _ in range(3)] for _ in range(30)]
    lock, held, most = threading.Lock(), [], []

    def decode(task):
        for need in needs[task]:
            with sharing(need):
                with lock:
                    held.append(need)
                    most.append(sum(held))
                yield need
                with lock:
                    held.remove(need)

    run = ThreadExecutor(4)
    if many == "map":
        found = [need for some in run.map(lambda task: list(decode(task)), range(30)) for need in some]
    else:
        found = list(run.stream(decode, range(30), budget=1))
    assert found == list(itertools.chain(*needs))
    assert max(most) <= 100 + 500


def test_a_scan_that_is_left_early_ends_tasks_that_wait_for_memory(monkeypatch):
    monkeypatch.setattr(executor, "DECODED_BYTES", 1)
    monkeypatch.setattr(executor, "CORE_DECODED_BYTES", 0)
    before = threading.active_count()

    def decode(task):
        with sharing(10):
            yield from range(100)

    stream = ThreadExecutor(4).stream(decode, range(8), budget=5)
    assert next(stream) == 0
    stream.close()
    assert threading.active_count() == before


def test_outside_of_tasks_there_is_nothing_to_share():
    with sharing(2**60):
        assert list(ThreadExecutor(2).map(lambda _: sharing(2**60).__enter__(), [1])) == [None]


class Boom(Exception):
    pass


def failing(task):
    yield task
    if task == 2:
        raise Boom
    yield task


def _drain(stream, seen):
    for item in stream:
        seen.append(item)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_after_what_was_before_it_and_ends_the_threads(workers):
    before = threading.active_count()
    seen = []
    stream = ThreadExecutor(workers).stream(failing, range(100))
    with pytest.raises(Boom):
        _drain(stream, seen)
    assert seen == [0, 0, 1, 1, 2]
    assert threading.active_count() == before
    with pytest.raises(Boom):
        list(ThreadExecutor(workers).map(lambda task: list(failing(task)), range(5)))


def test_results_that_wait_are_bounded():
    produced = threading.Semaphore(0)
    count = [0]
    lock = threading.Lock()

    def task(_):
        for _ in range(100):
            with lock:
                count[0] += 1
            produced.release()
            yield object()

    stream = ThreadExecutor(4).stream(task, range(8), budget=10)
    next(stream)
    for _ in range(11):
        assert produced.acquire(timeout=120)
    # Ten may wait, one was taken, and each of four threads may hold one that has no room.
    with lock:
        assert count[0] <= 10 + 1 + 4 + 1
    assert sum(1 for _ in stream) == 799


def test_leaving_early_closes_what_the_tasks_hold():
    closed = []

    def task(number):
        try:
            while True:
                yield number
        finally:
            closed.append(number)

    before = threading.active_count()
    stream = ThreadExecutor(3).stream(task, range(5), budget=5)
    assert next(stream) == 0
    stream.close()
    assert threading.active_count() == before
    assert sorted(closed) == sorted(set(closed))
    assert 0 in closed


def test_one_task_needs_no_thread():
    names = set()
    list(ThreadExecutor(3).stream(lambda _: iter([names.add(threading.current_thread())]), [1]))
    assert names == {threading.current_thread()}


def test_what_is_done_is_told_even_where_another_task_fails():
    told = []

    def task(number):
        if number == 1:
            raise Boom
        return number

    with pytest.raises(Boom):
        list(ThreadExecutor(1).map(task, [0, 1], done=told.append))
    assert told == [0]


def test_a_single_task_of_a_list_runs_in_the_thread_that_asks():
    assert list(ThreadExecutor(3).map(lambda _: threading.current_thread(), [1])) == [threading.current_thread()]


class _Apart:
    group_bytes = 100


@given(st.lists(st.integers(0, 150), max_size=20))
def test_groups_hold_all_files_in_order_and_no_more_than_fits(sizes):
    groups = grouped(_Apart(), sizes)
    assert [number for group in groups for number in group] == list(range(len(sizes)))
    assert all(group and (len(group) == 1 or sum(sizes[n] for n in group) <= 100) for group in groups)
    # No two neighbours would have fitted into one.
    for left, right in itertools.pairwise(groups):
        assert sum(sizes[n] for n in left) + sizes[right[0]] > 100


def test_threads_of_this_process_write_all_together():
    assert grouped(None, [1, 2]) == grouped(ThreadExecutor(), [1, 2]) == [[0, 1]]
    assert grouped(None, []) == []
