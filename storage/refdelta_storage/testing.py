"""The contract of a store as a test class, and a state machine against the store in memory.

Subclass :class:`StoreContract` and give a pytest fixture ``store`` that yields an empty store::

    class TestMine(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

Importing this module needs neither pytest nor hypothesis; only :func:`state_machine` needs the latter.
"""
# The name of a test says what it shows; and a contract asserts.
# ruff: noqa: D102, S101

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from refdelta_storage.base import Capabilities, Committed, Exists, ObjectInfo, PutOutcome, Store, Unknown
from refdelta_storage.errors import InvalidKeyError, ObjectExistsError, ObjectNotFoundError, StorageError
from refdelta_storage.memory import MemoryStore

# In the order of their bytes, which is not the order of their paths: "-" < "." < "/" < "0", and "Z" < "a" < "é" < "😀".
ORDERED_KEYS = (
    "Z",
    "_delta_log/00000000000000000000.json",
    "_delta_log/00000000000000000001.checkpoint.parquet",
    "_delta_log/00000000000000000001.json",
    "_delta_log/_last_checkpoint",
    "a!/x",
    "a-b",
    "a-b.c/x",
    "a.b",
    "a/b",
    "a/b-c",
    "a/b.c/d",
    "a/c/d",
    "a0",
    "aa/x",
    "p=a b/q=%2F/part 1.parquet",
    "p=a+b/[x]*?.parquet",
    "z",
    "é/ü",
    "\uffee",
    "😀",
)
ILLEGAL_KEYS = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\0b", "\ud800")


class StoreContract:
    """The behaviour of every store. The fixture ``store`` gives an empty one.

    Attributes:
        flat: whether "a" and "a/b" may both be objects, as in object stores and not in folders.
        writers: how many race for one key.
        rounds: how many races.
        every: of the many listings with a prefix and a start, every how manieth is tried; more than 1 for slow stores.
        foreign: a regular expression for the keys that the service behind the store gives to temporary objects of its
            own, which its listings show while an object is replaced; None if they never do. A store's own temporary
            files are never listed.
    """

    flat: ClassVar[bool] = False
    writers: ClassVar[int] = 50
    rounds: ClassVar[int] = 4
    every: ClassVar[int] = 1
    foreign: ClassVar[str | None] = None

    # -- one object

    def test_an_object_comes_back_as_it_was_put(self, store: Store) -> None:
        for key, data in (("a", b""), ("b/c/d.json", b"{}\n"), ("big", bytes(range(256)) * 4096)):
            store.put(key, data)
            assert store.get(key) == data
            assert store.head(key).size == len(data)
            with store.open_input(key) as stream:
                assert stream.read() == data

    def test_put_replaces(self, store: Store) -> None:
        store.put("a/b", b"a long first value")
        store.put("a/b", b"second")
        assert store.get("a/b") == b"second"
        assert [info.size for info in store.list()] == [6]

    def test_put_if_absent_creates_once(self, store: Store) -> None:
        assert isinstance(store.put_if_absent("_delta_log/0.json", b"one"), Committed)
        assert isinstance(store.put_if_absent("_delta_log/0.json", b"two"), Exists)
        assert isinstance(store.put_if_absent("_delta_log/0.json", b"one"), Exists)
        assert store.get("_delta_log/0.json") == b"one"

    def test_put_if_absent_creates_an_empty_object_once(self, store: Store) -> None:
        assert isinstance(store.put_if_absent("empty", b""), Committed)
        assert isinstance(store.put_if_absent("empty", b"more"), Exists)
        assert store.get("empty") == b""

    def test_put_if_absent_after_put_and_after_delete(self, store: Store) -> None:
        store.put("a", b"put")
        assert isinstance(store.put_if_absent("a", b"late"), Exists)
        store.delete(["a"])
        assert isinstance(store.put_if_absent("a", b"new"), Committed)
        assert store.get("a") == b"new"

    def test_a_missing_object_is_its_own_error(self, store: Store) -> None:
        store.put("folder/x", b"x")
        for key in ("missing", "folder", "folder/y", "no/such/folder", "folder/x/y"):
            calls: tuple[Callable[[str], Any], ...] = (
                store.get,
                store.head,
                store.open_input,
                lambda key: store.get_range(key, 0, 1),
                lambda key: store.get_range(key, 0, 0),
                lambda key: store.get_ranges(key, [(0, 1), (1, 2)]),
                lambda key: store.get_many(["folder/x", key]),
                lambda key: store.open_input(key, 10).read(),
            )
            for call in calls:
                with raises(ObjectNotFoundError) as error:
                    call(key)
                assert key in str(error[0]), f"the error does not name {key!r}: {error[0]}"

    def test_illegal_keys_are_refused(self, store: Store) -> None:
        for key in ILLEGAL_KEYS:
            calls: tuple[Callable[[str], Any], ...] = (
                store.get,
                store.head,
                store.open_input,
                lambda key: store.get_range(key, 0, 1),
                lambda key: store.get_ranges(key, [(0, 1)]),
                lambda key: store.open_input(key, 1),
                lambda key: store.get_many([key]),
                *_changes(store),
            )
            for call in calls:
                with raises(InvalidKeyError):
                    call(key)
        assert list(store.list()) == []

    def test_ranges(self, store: Store) -> None:
        data = bytes(range(100))
        store.put("r", data)
        for start, length in ((0, 0), (0, 1), (0, 100), (10, 20), (99, 1), (90, 100), (100, 1), (100, 0), (5000, 10)):
            assert store.get_range("r", start, length) == data[start : start + length], (start, length)
        assert store.get_range("r", 1, 1 << 50) == data[1:]
        for start, length in ((-1, 1), (0, -1), (-5, 10)):
            with raises(StorageError):
                store.get_range("r", start, length)
            with raises(StorageError):
                store.get_ranges("r", [(0, 1), (start, length)])

    def test_several_ranges_come_in_their_order(self, store: Store) -> None:
        data = bytes(range(256)) * 40
        store.put("r*", data)
        wanted = [(10_000, 100), (0, 10), (5, 0), (5, 10), (10_239, 5), (10_240, 5), (99_999, 1), (0, 10), (0, 1 << 40)]
        wanted += [(start * 100, 7) for start in range(60)]
        expected = [data[start : start + length] for start, length in wanted]
        assert store.get_ranges("r*", iter(wanted)) == expected
        assert store.get_ranges("r*", [(3, 4)]) == [data[3:7]]
        assert store.get_ranges("r*", []) == []

    def test_an_input_stream_of_a_known_size(self, store: Store) -> None:
        data = bytes(range(256)) * 4096
        store.put("s", data)
        with store.open_input("s", len(data)) as stream:
            assert stream.seek(-8, 2) == len(data) - 8
            assert stream.read() == data[-8:]
            assert stream.read() == stream.read(1) == b""
            for start, length in ((0, 4), (2, 10), (500_000, 300_000), (499_999, 2), (1_000_000, 1 << 30), (4, 0)):
                stream.seek(start)
                assert stream.read(length) == data[start : start + length], (start, length)
            buffer = bytearray(6)
            stream.seek(1)
            assert stream.readinto(buffer) == 6  # type: ignore[attr-defined]
            assert buffer == data[1:7]
        with raises(ValueError):
            stream.read()

    def test_an_input_stream_seeks(self, store: Store) -> None:
        store.put("s", b"0123456789")
        with store.open_input("s") as one, store.open_input("s") as two:
            assert one.seekable()
            assert one.seek(-3, 2) == 7
            assert one.read(2) == b"78"
            assert two.read(2) == b"01"
            assert one.tell() == 9
            one.seek(0)
            assert one.read() == b"0123456789"

    def test_get_many_keeps_the_order(self, store: Store) -> None:
        keys = [f"many/{number:03d}*[x]" for number in range(40)]
        for key in keys:
            store.put(key, key.encode())
        wanted = [*reversed(keys), keys[3], keys[3]]
        assert store.get_many(iter(wanted)) == [key.encode() for key in wanted]
        assert store.get_many([]) == []

    def test_times_are_those_of_now(self, store: Store) -> None:
        before = time.time_ns() // 1_000_000
        store.put("t", b"x")
        after = time.time_ns() // 1_000_000
        # Clocks of servers differ, and many have whole seconds. In milliseconds, and in UTC, is what is tested.
        assert before - 120_000 <= store.head("t").mtime_ms <= after + 120_000
        assert_same_objects(store.list(), [store.head("t")])

    def test_another_content_of_a_key_has_another_tag(self, store: Store) -> None:
        seen = []
        for number, write in enumerate((_put, _put_if_absent, _put, _output, _created)):
            if write in (_put_if_absent, _created):
                store.delete(["a/x"])
                store.put("a/beside", b"what a file system frees is taken by another file")
            write(store, "a/x", b"content %d" % number)
            info = store.head("a/x")
            (listed,) = store.list("a/x")
            for same in (store.head("a/x"), listed, pickle.loads(pickle.dumps(info))):  # noqa: S301 - our own bytes
                assert info.is_same(same), f"one object is two: {info} and {same}"
                assert same.is_same(info), f"one object is two: {same} and {info}"
            seen.append(info)
        # Without tags, size and time decide, and these are the same where writes are quick.
        tags = [info.tag for info in seen if info.tag is not None]
        assert len(tags) in (0, len(seen)), f"some objects have a tag, others none: {seen}"
        assert len({*tags}) == len(tags), f"several objects of one key have one tag: {seen}"

    # -- streams out

    def test_an_output_appears_when_it_is_finished(self, store: Store) -> None:
        with store.open_output("part=1/x.parquet") as stream:
            stream.write(b"first ")
            stream.flush()
            assert list(store.list()) == []
            with raises(ObjectNotFoundError):
                store.get("part=1/x.parquet")
            stream.write(b"second")
        assert store.get("part=1/x.parquet") == b"first second"
        assert [(info.key, info.size) for info in store.list()] == [("part=1/x.parquet", 12)]

    def test_an_output_may_be_closed_by_its_writer(self, store: Store) -> None:
        with store.open_output("x") as stream:
            stream.write(b"closed")
            stream.close()
        assert store.get("x") == b"closed"

    def test_an_aborted_output_leaves_nothing(self, store: Store) -> None:
        for error in (ValueError("mine"), KeyboardInterrupt()):
            with raises(type(error)), store.open_output("a/x") as stream:
                stream.write(b"half" * 100_000)
                raise error
            assert list(store.list()) == []
            with raises(ObjectNotFoundError):
                store.head("a/x")

    def test_an_output_in_flight_is_a_leftover_at_most(self, store: Store) -> None:
        assert list(store.leftovers()) == []
        with store.open_output("a/b/x") as stream:
            stream.write(b"half")
            stream.flush()
            in_flight = list(store.leftovers())
            assert all(info.size <= 4 and info.key != "a/b/x" for info in in_flight)
            assert list(store.list()) == []
        store.delete([info.key for info in in_flight])
        assert store.get("a/b/x") == b"half"
        assert list(store.leftovers()) == []

    def test_a_new_object_by_a_stream(self, store: Store) -> None:
        with store.create_output("part=1/x.parquet") as stream:
            stream.write(b"first ")
            stream.flush()
            assert list(store.list()) == []
            stream.write(b"second")
        assert store.get("part=1/x.parquet") == b"first second"
        with store.create_output("closed") as stream:
            stream.write(b"closed by its writer")
            stream.close()
        assert store.get("closed") == b"closed by its writer"
        with store.create_output("empty"):
            pass
        sizes = {"closed": 20, "empty": 0, "part=1/x.parquet": 12}
        assert {info.key: info.size for info in store.list()} == sizes
        assert list(store.leftovers()) == []

    def test_a_new_object_replaces_none(self, store: Store) -> None:
        store.put("old", b"old")
        reached = []
        for key in ("old", "meanwhile"):
            with raises(ObjectExistsError) as error, store.create_output(key) as stream:
                stream.write(b"new")
                if key == "meanwhile":
                    store.put(key, b"old")
                reached.append(key)
            assert key in str(error[0]), f"the error does not name {key!r}: {error[0]}"
            assert reached[-1:] == [key], f"the error came before the end of the block, for {key!r}"
            assert store.get(key) == b"old"
        assert [info.key for info in store.list()] == ["meanwhile", "old"]
        assert list(store.leftovers()) == []

    def test_a_new_object_that_is_aborted_leaves_nothing(self, store: Store) -> None:
        store.put("old", b"old")
        for key, error in itertools.product(("a/x", "old"), (ValueError("mine"), KeyboardInterrupt())):
            with raises(type(error)), store.create_output(key) as stream:
                stream.write(b"half" * 100_000)
                raise error
            assert [info.key for info in store.list()] == ["old"]
            assert store.get("old") == b"old"
        with raises(ObjectNotFoundError):
            store.head("a/x")
        assert list(store.leftovers()) == []
        assert isinstance(store.put_if_absent("a/x", b""), Committed)

    def test_one_of_many_streams_creates_an_object(self, store: Store) -> None:
        assert_one_winner(store, "new/x", race(store, "new/x", self.writers, _create))

    # -- listings

    def keys(self) -> tuple[str, ...]:
        """The keys of the listing tests, in their order."""
        return tuple(sorted((*ORDERED_KEYS, "a", "é"), key=str.encode)) if self.flat else ORDERED_KEYS

    def test_listings_are_in_the_order_of_bytes(self, store: Store) -> None:
        keys = self.keys()
        for key in reversed(keys):
            store.put(key, key.encode())
        listing = list(store.list())
        assert [info.key for info in listing] == list(keys)
        assert [info.size for info in listing] == [len(key.encode()) for key in keys]
        assert_same_objects(listing, [store.head(key) for key in keys])

    def test_listings_after_a_key_and_under_a_prefix(self, store: Store) -> None:
        keys = self.keys()
        for key in keys:
            store.put(key, b"")
        prefixes = ["", *keys, *(key[:-1] for key in keys), "a/", "a/b", "p=", "none", "none/", "_delta_log/0000", "z/"]
        afters = [None, "", *keys, "a", "a/", "b", "_delta_log/", "_delta_log/00000000000000000000.json!", "\U0010ffff"]
        for prefix, after in [*itertools.product(prefixes, afters)][:: self.every]:
            expected = [key for key in keys if key.startswith(prefix) and key.encode() > (after or "").encode()]
            found = [info.key for info in store.list(prefix, after)]
            assert found == expected, (prefix, after)

    def test_a_listing_of_nothing_is_empty(self, store: Store) -> None:
        assert list(store.list()) == []
        assert list(store.list("no/such/folder")) == []
        store.put("file", b"")
        assert list(store.list("file/")) == []

    def test_illegal_prefixes_are_refused(self, store: Store) -> None:
        for prefix in ("/", "/a", "../", "a/../b", "a//b", "./a"):
            with raises(InvalidKeyError):
                list(store.list(prefix))

    # -- deleting

    def test_delete_in_bulk(self, store: Store) -> None:
        keys = [f"d/{number}" for number in range(30)]
        for key in (*keys, "d/1*", "d/[1]", "e"):
            store.put(key, b"")
        store.delete(["d/1*", "d/[1]", "missing", "d/missing", "no/such"])
        assert {info.key for info in store.list()} == {*keys, "e"}
        store.delete(iter([*keys, keys[0]]))
        assert [info.key for info in store.list()] == ["e"]
        store.delete([])
        store.delete(["e"])
        assert list(store.list()) == []

    def test_deleting_a_folder_deletes_nothing(self, store: Store) -> None:
        store.put("d/x", b"")
        store.put("d/y/z", b"")
        store.delete(["d", "d/y"])
        assert [info.key for info in store.list()] == ["d/x", "d/y/z"]

    def test_objects_that_are_as_they_were_are_deleted(self, store: Store) -> None:
        # Of a few a store may look at each, of many it may list them.
        for count in (3, 12):
            keys = [f"d/{number}" for number in range(10, 10 + count)]
            for key in (*keys, "d", "d/1", "d0") if self.flat else (*keys, "d/1", "d0"):
                store.put(key, b"old")
            infos = [store.head(key) for key in keys[::2]]
            infos += [info for info in store.list("d/") if info.key in keys[1::2]]
            put, remade, gone, *_ = keys if count > 3 else [*keys[:2], "d/none"]
            new = b"another" if None in {info.tag for info in infos} else b"new"
            store.put(put, new)
            store.delete([remade, gone])
            store.put("d/beside", b"what a file system frees is taken by another file")
            store.put_if_absent(remade, new)
            store.delete_unchanged(iter([*infos, infos[-1]]))
            left = [info.key for info in store.list() if info.key in keys]
            assert left == [put, remade], f"of {keys} the ones that others had replaced should be left: {left}"
            assert store.get_many(left) == [new, new]
            assert store.get_many(["d/1", "d0"]) == [b"old", b"old"]
        before = list(store.list())
        store.delete_unchanged([])
        store.delete_unchanged(infos)
        assert list(store.list()) == before

    # -- a folder that is removed, moved away or made anew

    def folder(self, store: Store, key: str) -> str | None:
        """The path of a folder of the store, which others may remove or move away; None for a store without folders."""
        return store.local_path(key)

    def test_changes_in_a_pinned_folder_are_those_of_the_store(self, store: Store) -> None:
        store.put("log/old", b"old")
        with store.pinned("log") as view:
            assert view.uri == store.uri
            _change(view, "log/")
            _change(view, "elsewhere/")
            assert isinstance(view.put_if_absent("log/old", b"new"), Exists)
            assert isinstance(view.hasty().put_if_absent("log/hasty", b"quick"), Committed)
            for key in ("log/", "log//x", "log/../x", "log/./x", "log/x/..", "log/x\0"):
                for call in _changes(view):
                    with raises(InvalidKeyError):
                        call(key)
            assert view.get_many(["log/a", "elsewhere/a"]) == [b"put", b"put"]
            view.remove_empty("log")
        names = ["a", "new", "p/q/r", "stream"]
        expected = [*(f"elsewhere/{name}" for name in names), *(f"log/{name}" for name in (*names, "hasty", "old"))]
        assert [info.key for info in store.list()] == sorted(expected)
        assert store.get_many(expected[:4]) == store.get_many(expected[4:8]) == [b"put", b"", b"r", b"streamed"]
        assert list(store.leftovers()) == []

    def test_a_folder_that_is_not_there_is_not_pinned(self, store: Store) -> None:
        if self.folder(store, "log") is not None:
            with raises(ObjectNotFoundError), store.pinned("log"):
                pass
        assert list(store.list()) == []

    def test_a_pinned_folder_that_was_removed_is_not_made_again(self, store: Store) -> None:
        store.put("log/old", b"old")
        store.put("else", b"")
        path = self.folder(store, "log")
        if path is None:
            return
        with store.pinned("log") as view:
            shutil.rmtree(path)
            for _ in range(2):  # while there is none, and beside a new one
                left = {info.key: store.get(info.key) for info in store.list()}
                for write in (_put, _put_if_absent, _output, _created):
                    for key in ("log/old", "log/new", "log/p/new"):
                        with raises(StorageError):
                            write(view, key, b"written by the view")
                with contextlib.suppress(StorageError):
                    view.delete(["log/old", "log/of the new one"])
                with contextlib.suppress(StorageError):
                    view.delete_unchanged(store.list("log/"))
                view.remove_empty("log")
                assert os.path.exists(path) is ("log/old" in left), "the folder was made again, or removed"  # noqa: PTH110
                assert {info.key: store.get(info.key) for info in store.list()} == left | {"else": b""}
                assert list(store.leftovers()) == []
                store.put("log/old", b"of a new folder")
                store.put("log/of the new one", b"")

    def test_what_goes_into_a_pinned_folder_goes_into_no_other(self, store: Store) -> None:
        store.put("log/old", b"old")
        store.put("log/own", b"own")
        path, moved = self.folder(store, "log"), self.folder(store, "moved")
        if path is None or moved is None:
            return
        with store.pinned("log") as view:
            os.rename(path, moved)  # noqa: PTH104
            store.put("log/old", b"new")
            os.mkdir(f"{path}/empty")  # noqa: PTH102
            theirs = [(info, store.get(info.key)) for info in store.list("log/")]
            written = {"moved/old": b"old", "moved/own": b"own"}
            for write in (_put, _put_if_absent, _output, _created):
                key = f"log/p/{len(written)}"
                with contextlib.suppress(StorageError):
                    write(view, key, b"written by the view")
                    written[f"moved{key.removeprefix('log')}"] = b"written by the view"
            with contextlib.suppress(StorageError):
                view.delete_unchanged([theirs[0][0]])
            with contextlib.suppress(StorageError):
                view.delete(["log/own"])
                del written["moved/own"]
            for folder in ("log", "log/empty"):
                view.remove_empty(folder)
            assert [(info, store.get(info.key)) for info in store.list("log/")] == theirs
            assert os.path.isdir(f"{path}/empty")  # noqa: PTH112
            assert {info.key: store.get(info.key) for info in store.list("moved/")} == written
        assert list(store.leftovers()) == []

    def test_an_empty_folder_can_be_removed_by_its_view(self, store: Store) -> None:
        store.put("log/p/x", b"")
        path = self.folder(store, "log")
        with store.pinned("log") as view:
            for folder in ("log/p", "log"):
                view.remove_empty(folder)
            assert [info.key for info in store.list()] == ["log/p/x"]
            view.delete(["log/p/x"])
            for folder in ("log/p", "log"):
                view.remove_empty(folder)
        assert list(store.list()) == []
        assert path is None or not os.path.exists(path)  # noqa: PTH110

    # -- many at once

    def test_one_of_many_writers_wins(self, store: Store) -> None:
        for number in range(self.rounds):
            key = f"_delta_log/{number:020d}.json"
            outcomes = race(store, key, self.writers)
            assert_one_winner(store, key, outcomes)

    def test_many_writers_of_many_keys_lose_none(self, store: Store) -> None:
        keys = [f"new/folder/{number % 7}/{number}" for number in range(60)]
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda key: store.put_if_absent(key, key.encode()), keys))
        assert all(isinstance(outcome, Committed) for outcome in outcomes), outcomes
        assert {info.key for info in store.list("new/")} == set(keys)

    def test_readers_never_see_a_part(self, store: Store) -> None:
        values = [bytes([65 + number]) * (50_000 + 7_000 * number) for number in range(8)]

        def write(number: int) -> None:
            key, value = f"torn/{number % 4}", values[number % len(values)]
            store.put_if_absent(key, value)
            with store.open_output("torn/stream") as stream:
                for start in range(0, len(value), 10_000):
                    stream.write(value[start : start + 10_000])
            store.put("torn/replaced", value)

        keys = [*(f"torn/{number}" for number in range(4)), "torn/stream", "torn/replaced"]
        watch(store, keys, values, write, 40, foreign=self.foreign)

    def test_a_pickled_store_is_the_same_place(self, store: Store) -> None:
        store.put("p/q", b"data")
        copy: Store = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
        assert copy.get("p/q") == b"data"
        assert isinstance(copy.put_if_absent("p/q", b"other"), Exists)
        assert copy.uri == store.uri
        assert copy.capabilities == store.capabilities

    def test_it_says_where_it_is_and_what_it_promises(self, store: Store) -> None:
        assert "://" in store.uri
        assert not store.uri.endswith("/")
        assert isinstance(store.capabilities, Capabilities)
        assert store.capabilities.put_if_absent
        store.put("x", b"native")
        path = store.local_path("x")
        if path is not None:
            with open(path, "rb") as stream:  # noqa: PTH123
                assert stream.read() == b"native"


__all__ = [
    "ILLEGAL_KEYS",
    "ORDERED_KEYS",
    "StoreContract",
    "assert_one_winner",
    "assert_same_objects",
    "outcome",
    "race",
    "raises",
    "state_machine",
    "watch",
]


# --- races, and readers beside writers ---


class raises:  # noqa: N801 - reads as pytest's, which a user of the contract need not have
    """Fail unless the block ends by an exception of this type, which is put into the list that ``with`` gives."""

    def __init__(self, expected: type[BaseException]) -> None:
        self._expected = expected
        self._caught: list[BaseException] = []

    def __enter__(self) -> list[BaseException]:
        return self._caught

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            raise AssertionError(f"no {self._expected.__name__} was raised")
        self._caught.append(error)
        return isinstance(error, self._expected)


def assert_same_objects(listed: Iterable[ObjectInfo], looked_at: Iterable[ObjectInfo]) -> None:
    """Compare a listing with the status of each object; some stores round times to seconds."""
    for one, other in zip(listed, looked_at, strict=True):
        assert (one.key, one.size) == (other.key, other.size)
        assert abs(one.mtime_ms - other.mtime_ms) < 1000, (one, other)


def race(
    store: Store, key: str, writers: int, create: Callable[[Store, str, bytes], PutOutcome] | None = None
) -> list[tuple[bytes, PutOutcome]]:
    """Let threads create an object of different bytes at once. Returns the bytes and the outcome of each."""
    barrier = threading.Barrier(writers)

    def write(number: int) -> tuple[bytes, PutOutcome]:
        data = (f"writer {number}\n" * 200).encode()
        barrier.wait()
        return data, create(store, key, data) if create else store.put_if_absent(key, data)

    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(write, range(writers)))


def _create(store: Store, key: str, data: bytes) -> PutOutcome:
    """The outcome of :meth:`Store.create_output`, as that of a put."""
    try:
        _created(store, key, data)
    except ObjectExistsError:
        return Exists()
    except StorageError as error:
        return Unknown(error)
    return Committed()


def _put(store: Store, key: str, data: bytes) -> None:
    store.put(key, data)


def _put_if_absent(store: Store, key: str, data: bytes) -> None:
    store.put_if_absent(key, data)


def _created(store: Store, key: str, data: bytes) -> None:
    with store.create_output(key) as stream:
        stream.write(data)


def _output(store: Store, key: str, data: bytes) -> None:
    with store.open_output(key) as stream:
        stream.write(data)


def _changes(store: Store) -> tuple[Callable[[str], Any], ...]:
    """The calls that change the object of a key."""
    return (
        lambda key: store.put(key, b""),
        lambda key: store.put_if_absent(key, b""),
        lambda key: store.delete([key]),
        lambda key: store.delete_unchanged([ObjectInfo(key, 0, 0)]),
        lambda key: store.open_output(key).__enter__(),
        lambda key: store.create_output(key).__enter__(),
    )


def _change(view: Store, folder: str) -> None:
    """Change objects of a folder in each way; four are left."""
    view.put(f"{folder}a", b"first")
    view.put(f"{folder}a", b"put")
    assert isinstance(view.put_if_absent(f"{folder}new", b""), Committed)
    assert isinstance(view.put_if_absent(f"{folder}new", b"more"), Exists)
    _output(view, f"{folder}stream", b"first")
    _output(view, f"{folder}stream", b"streamed")
    _created(view, f"{folder}p/q/r", b"r")
    with raises(ObjectExistsError):
        _created(view, f"{folder}p/q/r", b"another")
    for number in range(8):
        view.put(f"{folder}gone/{number}", b"")
    with raises(ValueError), view.open_output(f"{folder}aborted"):
        raise ValueError
    view.delete([f"{folder}gone/0", f"{folder}missing", f"{folder}gone", f"{folder}no/such", f"{folder}a/b"])
    view.put(f"{folder}gone/1", b"replaced")
    infos = [ObjectInfo(f"{folder}a/b", 0, 0), *view.list(f"{folder}gone/")]
    view.put(f"{folder}gone/2", b"replaced")
    view.delete_unchanged(infos)
    assert [info.key for info in view.list(f"{folder}gone")] == [f"{folder}gone/2"]
    view.delete([f"{folder}gone/2"])
    view.remove_empty(f"{folder}gone")


def assert_one_winner(store: Store, key: str, outcomes: Sequence[tuple[bytes, PutOutcome]]) -> None:
    """Check the outcomes of a race against the object.

    Only the writer of the object may have got ``Committed``. It may also have got ``Unknown``, or ``Exists`` if its
    request was resent by the client.
    """
    content = store.get(key)
    created = [data for data, outcome in outcomes if isinstance(outcome, Committed)]
    assert len(created) <= 1, f"{len(created)} writers got Committed for {key!r}"
    assert content in {data for data, _ in outcomes}, f"{key!r} has content that no writer wrote"
    assert created in ([content], []), f"the writer that got Committed for {key!r} did not create it"
    unknown = [data for data, outcome in outcomes if isinstance(outcome, Unknown)]
    assert created or unknown, f"no writer got Committed or Unknown for {key!r}"


def watch(
    store: Store,
    keys: Sequence[str],
    values: Sequence[bytes],
    write: Callable[[int], None],
    writes: int,
    *,
    foreign: str | None = None,
) -> None:
    """Read ``keys`` while ``write(0)``, ``write(1)``, ... run; fail if one is seen with other than ``values``, or if
    another key is listed that does not match ``foreign``.
    """
    whole, sizes = set(values), {len(value) for value in values}
    done = threading.Event()

    def look() -> str | None:
        while True:
            last = done.is_set()
            for key in keys:
                try:
                    content = store.get(key)
                    size = store.head(key).size
                    end = store.get_range(key, 0, 1 << 20)
                except ObjectNotFoundError:
                    continue
                if content not in whole or size not in sizes or end not in whole:
                    return f"{key!r} was seen with {len(content)} bytes, and with a size of {size}"
            for info in store.list():
                if info.key not in keys and foreign is not None and re.fullmatch(foreign, info.key):
                    continue
                if info.key not in keys or info.size not in sizes:
                    return f"{info.key!r} was listed with {info.size} bytes"
            if last:
                return None

    with ThreadPoolExecutor(6) as pool:
        watchers = [pool.submit(look) for _ in range(2)]
        try:
            list(pool.map(write, range(writes)))
        finally:
            done.set()
        seen = [watcher.result() for watcher in watchers]
    assert not any(seen), next(filter(None, seen))


# --- the state machine ---

# Names of folders and of files in the state machine; none is both, so that folders can hold them.
_FOLDERS = ("a", "a-b", "a.b", "é", "_delta_log", "p=1 %")
_FILES = ("0", "0.json", "0-1", "ä", "x*", "_last", "00000000000000000010.json")


def state_machine(make: Callable[[], Store], discard: Callable[[Store], None] = lambda _store: None) -> type[Any]:  # noqa: C901
    """A hypothesis ``RuleBasedStateMachine`` that does the same to a new store and to one in memory, and compares.

    Run it with ``hypothesis.stateful.run_state_machine_as_test``, or take its ``TestCase``.

    Args:
        make: gives an empty store, for each run.
        discard: is called with the store after the run.
    """
    import hypothesis.strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule

    folders = st.lists(st.sampled_from(_FOLDERS), max_size=3)
    keys = st.builds(lambda folder, name: "/".join([*folder, name]), folders, st.sampled_from(_FILES))
    places = st.one_of(
        keys, st.just(""), folders.map("/".join), folders.map(lambda parts: "".join(f"{p}/" for p in parts))
    )
    data = st.binary(max_size=40)

    class StoreMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.store = MemoryStore(), make()

        def teardown(self) -> None:
            discard(self.store)

        def same(self, call: Callable[[Store], Any]) -> None:
            expected, found = outcome(call, self.model), outcome(call, self.store)
            assert found == expected, f"the store gives {found!r}, the model {expected!r}"

        def one_of_those_there(self, pick: int) -> str:
            there = [info.key for info in self.model.list()]
            return there[pick % len(there)] if there else ""

        @rule(key=keys, data=data)
        def put(self, key: str, data: bytes) -> None:
            self.same(lambda store: store.put(key, data))

        @rule(key=keys, data=data)
        def put_if_absent(self, key: str, data: bytes) -> None:
            self.same(lambda store: type(store.put_if_absent(key, data)))

        @rule(key=keys, chunks=st.lists(data, max_size=3), abort=st.booleans(), create=st.booleans())
        def output(self, key: str, chunks: list[bytes], abort: bool, create: bool) -> None:
            self.same(lambda store: _stream(store, key, chunks, abort=abort, create=create))

        @rule(key=keys)
        def read(self, key: str) -> None:
            self.same(lambda store: store.get(key))
            self.same(lambda store: store.head(key).size)
            self.same(lambda store: _read_stream(store, key))

        @rule(key=keys, start=st.integers(-1, 50), length=st.integers(-1, 50))
        def read_range(self, key: str, start: int, length: int) -> None:
            self.same(lambda store: store.get_range(key, start, length))

        @rule(key=keys, ranges=st.lists(st.tuples(st.integers(-1, 50), st.integers(-1, 50)), min_size=1, max_size=3))
        def read_ranges(self, key: str, ranges: list[tuple[int, int]]) -> None:
            self.same(lambda store: store.get_ranges(key, ranges))

        @rule(some=st.lists(keys, max_size=4))
        def read_many(self, some: list[str]) -> None:
            self.same(lambda store: store.get_many(some))

        @rule(some=st.lists(keys, max_size=4))
        def delete(self, some: list[str]) -> None:
            self.same(lambda store: store.delete(some))

        @rule(some=st.lists(keys, max_size=4))
        def delete_unchanged(self, some: list[str]) -> None:
            self.same(lambda store: store.delete_unchanged([one for one in store.list() if one.key in some]))

        @rule(prefix=places, after=st.none() | places)
        def listing(self, prefix: str, after: str | None) -> None:
            self.same(lambda store: [(info.key, info.size) for info in store.list(prefix, after)])

        @rule(pick=st.integers(0, 30), start=st.integers(0, 5), length=st.integers(1, 10))
        def range_of_an_object(self, pick: int, start: int, length: int) -> None:
            key = self.one_of_those_there(pick)
            if key:
                self.same(lambda store: store.get_range(key, start, length))
                self.same(lambda store: store.get_ranges(key, [(start, length), (0, length)]))

        @rule(pick=st.integers(0, 30))
        def listing_after_an_object(self, pick: int) -> None:
            after = self.one_of_those_there(pick)
            self.same(lambda store: [info.key for info in store.list("", after)])
            self.same(lambda store: [info.key for info in store.list(after.rpartition("/")[0], after)])

        @rule()
        def everything(self) -> None:
            self.same(lambda store: [(info.key, info.size) for info in store.list()])

    return StoreMachine


def outcome(call: Callable[[Store], Any], store: Store) -> Any:
    """The result of a call or the class of its error, which must be the same for both stores."""
    try:
        return call(store)
    except (ObjectNotFoundError, ObjectExistsError, InvalidKeyError) as error:
        return type(error)
    except StorageError:
        return StorageError


class _AbortedError(Exception):
    """Thrown by the state machine into its own blocks."""


def _read_stream(store: Store, key: str) -> bytes:
    with store.open_input(key) as stream:
        return stream.read()


def _stream(store: Store, key: str, chunks: Sequence[bytes], *, abort: bool, create: bool) -> None:
    try:
        with store.create_output(key) if create else store.open_output(key) as stream:
            for chunk in chunks:
                stream.write(chunk)
            if abort:
                raise _AbortedError  # noqa: TRY301 - an exception in the block is what is tried
    except _AbortedError:
        return
