"""fsspec's file systems: outcomes that are never better than what is known, and errors without secrets.

Tests of refdelta_storage.fsspec_store, refdelta_storage.probe.
"""

import pickle
import traceback
from datetime import UTC, datetime, timedelta, timezone
from typing import ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from refdelta_storage import (
    Capabilities,
    Committed,
    Exists,
    FsspecStore,
    InvalidOptionError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    StorageError,
    Unknown,
    clients,
    open_store,
    probe,
)

SAFE = Capabilities(put_if_absent=True, list_after=False, durable=True, remote=True)


def over(fs):
    return FsspecStore(fs, "/bucket/table", "honest://bucket/table", SAFE)


class TestOutcome:
    def test_created_and_exists(self, honest):
        assert isinstance(over(honest).put_if_absent("k", b"x"), Committed)
        assert isinstance(over(honest).put_if_absent("k", b"y"), Exists)

    @pytest.mark.parametrize(
        "error",
        [
            OSError(22, "PreconditionFailed without a Condition"),
            OSError(5, "ConditionalRequestConflict"),
            PermissionError("forbidden"),
            TimeoutError("timed out"),
            ConnectionResetError("peer"),
            FileNotFoundError("no such bucket"),
            ValueError("the client library's own"),
            RuntimeError("the loop is closed"),
        ],
    )
    @pytest.mark.parametrize("stored", [True, False])
    def test_no_error_says_that_nothing_was_written(self, honest, monkeypatch, error, stored):
        put = honest.pipe_file

        def fail(path, value, mode="overwrite", **kwargs):
            if stored:
                put(path, value, mode=mode, **kwargs)
            raise error

        monkeypatch.setattr(honest, "pipe_file", fail)
        store = over(honest)
        outcome = store.put_if_absent("k", b"x")
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.cause, StorageError)
        assert [info.key for info in store.list()] == (["k"] if stored else [])

    def test_exists_may_be_our_own(self, honest, monkeypatch):
        put = honest.pipe_file

        def resend(path, value, mode="overwrite", **kwargs):
            put(path, value, mode=mode, **kwargs)
            put(path, value, mode=mode, **kwargs)

        monkeypatch.setattr(honest, "pipe_file", resend)
        store = over(honest)
        assert isinstance(store.put_if_absent("k", b"ours"), Exists)
        assert store.get("k") == b"ours"

    def test_an_interrupt_is_not_an_outcome(self, honest, monkeypatch):
        def interrupt(*_args, **_kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(honest, "pipe_file", interrupt)
        with pytest.raises(KeyboardInterrupt):
            over(honest).put_if_absent("k", b"x")

    def test_more_arguments_go_with_the_conditional_put_only(self, honest, monkeypatch):
        seen = []
        monkeypatch.setattr(honest, "pipe_file", lambda _path, _value, **kwargs: seen.append(kwargs))
        store = FsspecStore(honest, "/b", "honest://b", SAFE, {"chunksize": 2**31})
        store.put_if_absent("k", b"")
        store.put("k", b"")
        assert seen == [{"mode": "create", "chunksize": 2**31}, {}]


class TestPromises:
    def test_nothing_is_promised_unless_stated(self, honest):
        store = FsspecStore(honest, "/b", "honest://b")
        assert not store.capabilities.put_if_absent
        with pytest.raises(StorageError, match="nothing can be committed"):
            store.put_if_absent("k", b"x")
        assert list(store.list()) == []
        store.put("data", b"x")
        assert store.get("data") == b"x"

    @pytest.mark.parametrize(
        "fs", [LocalFileSystem(), DirFileSystem("/tmp", LocalFileSystem()), fsspec.filesystem("local")]
    )
    def test_the_local_file_system_is_refused(self, fs):
        with pytest.raises(InvalidOptionError, match="LocalStore"):
            FsspecStore(fs, "/tmp", "file:///tmp", SAFE)

    def test_a_store_over_a_shared_file_system_can_be_pickled(self):
        store = FsspecStore(MemoryFileSystem(), "/pickled/table", "mem://pickled/table", SAFE)
        store.put("x", b"1")
        try:
            assert pickle.loads(pickle.dumps(store)).get("x") == b"1"
        finally:
            store.delete(["x"])


class TestErrors:
    SECRET = "wJalrXUtnFEMI/K7MDENG"

    class Leaky(MemoryFileSystem):
        """Puts what it knows into its messages, as client libraries do."""

        protocol = "leaky"
        cachable = False

        def leak(self, *_args, **_kwargs):
            raise OSError(
                f"403 for https://user:pw123@host/b?sv=1&sig=abc%2Bdef&X-Amz-Signature=feed; key {TestErrors.SECRET}; "
                "AccountKey=Zm9v=="
            )

        pipe_file = cat_file = put_file = info = find = rm_file = leak

    def test_secrets_stay_out_of_messages_tracebacks_and_reprs(self):
        fs = self.Leaky(secret=self.SECRET, client_kwargs={"aws_session_token": "nested-token"})
        store = over(fs)

        def stream():
            with store.open_output("k") as output:
                output.write(b"x")

        causes = [store.put_if_absent("k", b"x").cause]
        for call in (
            lambda: store.get("k"),
            lambda: store.get_range("k", 0, 1),
            lambda: store.get_ranges("k", [(0, 1), (5, 1)]),
            lambda: store.get_many(["k"]),
            lambda: store.put("k", b""),
            lambda: store.head("k"),
            lambda: list(store.list()),
            lambda: store.delete(["k"]),
            lambda: store.open_input("k"),
            stream,
        ):
            try:
                call()
            except StorageError as error:
                causes.append(error)
        assert len(causes) == 11
        for cause in causes:
            text = "".join(traceback.format_exception(cause)) + repr(cause) + repr(store) + store.uri
            assert "403" in text
            for secret in (self.SECRET, "abc%2Bdef", "feed", "pw123", "Zm9v", "nested-token"):
                assert secret not in text

    def test_what_is_missing_in_the_words_of_others(self, honest, monkeypatch):
        class ResourceNotFoundError(Exception):
            """Azure's name for it."""

        def missing(*_args, **_kwargs):
            raise ResourceNotFoundError("the container does not exist")

        for name in ("cat_file", "info", "find", "rm_file"):
            monkeypatch.setattr(honest, name, missing)
        store = over(honest)
        for call in (store.get, store.head, store.open_input):
            with pytest.raises(ObjectNotFoundError):
                call("k")
        assert list(store.list()) == []
        store.delete(["k"])

    def test_a_bulk_delete_that_fails_in_the_middle_goes_on_one_by_one(self, honest, monkeypatch):
        store = over(honest)
        for key in "abcd":
            store.put(key, b"")

        def half(paths):
            honest.rm_file(paths[0])
            raise OSError("some were not there")

        monkeypatch.setattr(honest, "rm", half)
        store.delete(["a", "b", "c", "gone"])
        assert [info.key for info in store.list()] == ["d"]


class TestReading:
    def test_ranges_beyond_the_end_where_the_server_calls_them_an_error(self, honest, monkeypatch):
        store = over(honest)
        store.put("k", b"0123456789")
        cat = honest.cat_file

        def strict(path, start=None, end=None, **kwargs):
            if start is not None and start >= honest.info(path)["size"]:
                raise OSError(22, "InvalidRange")
            return cat(path, start=start, end=end, **kwargs)

        monkeypatch.setattr(honest, "cat_file", strict)
        assert store.get_range("k", 10, 5) == store.get_range("k", 99, 5) == b""
        assert store.get_range("k", 8, 5) == b"89"
        with pytest.raises(ObjectNotFoundError):
            store.get_range("gone", 0, 5)

    def test_a_range_that_fails_for_another_reason_is_an_error(self, honest, monkeypatch):
        store = over(honest)
        store.put("k", b"0123456789")

        def fail(*_args, **_kwargs):
            raise ConnectionResetError("peer")

        monkeypatch.setattr(honest, "cat_file", fail)
        with pytest.raises(StorageError, match="cannot read 'k'"):
            store.get_range("k", 3, 5)

    def test_many_are_fetched_in_one_go_and_not_as_patterns(self, honest, monkeypatch):
        store = over(honest)
        for key in ("a*", "ab", "a[b]"):
            store.put(key, key.encode())
        calls = []

        def cat_ranges(paths, starts, ends, on_error="return", batch_size=None):
            calls.append(paths)
            found = []
            for path in paths:
                try:
                    found.append(honest.cat_file(path, start=starts, end=ends))
                except FileNotFoundError as error:
                    found.append(error)
            return found

        monkeypatch.setattr(honest, "async_impl", True, raising=False)
        monkeypatch.setattr(honest, "cat_ranges", cat_ranges)
        assert store.get_many(["a[b]", "a*", "ab"]) == [b"a[b]", b"a*", b"ab"]
        assert len(calls) == 1
        with pytest.raises(ObjectNotFoundError, match="gone"):
            store.get_many(["ab", "gone"])

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("LastModified", datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
            ("LastModified", datetime(2024, 1, 2, 4, 4, 5, 678000, tzinfo=timezone(timedelta(hours=1)))),
            ("last_modified", datetime(2024, 1, 2, 3, 4, 5, 678000)),
            ("mtime", 1704164645.678),
            ("updated", "2024-01-02T03:04:05.678Z"),
        ],
    )
    def test_times_in_the_words_of_others(self, honest, monkeypatch, field, value):
        monkeypatch.setattr(
            honest, "find", lambda path, detail: {f"{path}/k": {"type": "file", "size": 3, field: value}}
        )
        assert [(info.key, info.size, info.mtime_ms) for info in over(honest).list()] == [("k", 3, 1704164645678)]

    def test_names_that_are_no_keys_are_not_listed(self, honest, monkeypatch):
        listing = {
            "/bucket/table/a//b": {"type": "file", "size": 1, "mtime": 0},
            "/bucket/table/dir": {"type": "directory", "size": 0, "mtime": 0},
            "/bucket/table/dir/": {"type": "file", "size": 0, "mtime": 0},
            "/bucket/table2/x": {"type": "file", "size": 1, "mtime": 0},
            "/bucket/table/k": {"type": "file", "size": 1, "mtime": 0},
        }
        monkeypatch.setattr(honest, "find", lambda _path, detail: listing)
        assert [info.key for info in over(honest).list()] == ["k"]


class TestProbe:
    """Protocols of which nothing is known are tried before the first write."""

    class Sloppy(MemoryFileSystem):
        """Takes no notice of the mode, as file systems do that were written before there was one."""

        protocol = "sloppy"
        cachable = False
        store: ClassVar[dict] = {}
        pseudo_dirs: ClassVar[list] = [""]

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            super().pipe_file(path, value, mode="overwrite", **kwargs)

    class ReadingOnly(MemoryFileSystem):
        protocol = "readingonly"
        cachable = False

        def pipe_file(self, path, value, **kwargs):
            raise NotImplementedError("this file system is for reading")

    @pytest.fixture
    def place(self, honest):
        probe._verdicts.found.clear()
        clients._made.renew()
        for cls in (type(honest), self.Sloppy, self.ReadingOnly):
            fsspec.register_implementation(cls.protocol, cls, clobber=True)
        return open_store

    def test_one_that_keeps_its_word_may_be_written(self, place):
        store = place("honest://bucket/table")
        assert isinstance(store.put_if_absent("a", b"1"), Committed)
        assert isinstance(place("honest://bucket/table").put_if_absent("a", b"2"), Exists)
        assert [info.key for info in store.list()] == ["a"]

    def test_one_that_does_not_is_refused_and_the_error_says_why(self, place):
        store = place("sloppy://bucket/table")
        with pytest.raises(
            ReadOnlyStoreError,
            match="cannot write to sloppy://bucket/table: 2 of 2 writers got a success for the same object",
        ):
            store.put("a", b"1")
        assert list(store.list()) == []

    def test_one_that_cannot_write_says_so_itself(self, place):
        store = place("readingonly://bucket/table")
        with pytest.raises(StorageError, match=r"cannot try whether .*: this file system is for reading"):
            store.put("a", b"1")


class TestListingsThatFail:
    """fsspec's walk takes a folder that cannot be listed for an empty one."""

    class Failing(MemoryFileSystem):
        cachable = False
        find = AbstractFileSystem.find
        at = ""
        error: ClassVar[Exception] = PermissionError(13, "denied")

        def ls(self, path, detail=True, **kwargs):
            if path.rstrip("/").endswith(self.at):
                raise self.error
            return super().ls(path, detail=detail, **kwargs)

    @pytest.mark.parametrize("at", ["failing", "failing/p=1"])
    def test_is_an_error(self, at):
        fs = self.Failing()
        fs.at, fs.error = at, PermissionError(13, "denied")
        fs.pipe_file("/failing/p=1/file", b"x")
        with pytest.raises(StorageError, match="denied"):
            list(FsspecStore(fs, "/failing", "x://failing", SAFE).list())

    @pytest.mark.parametrize("at", ["failing", "failing/p=1"])
    def test_a_folder_that_went_is_empty(self, at):
        fs = self.Failing()
        fs.at, fs.error = at, FileNotFoundError(2, "gone")
        fs.pipe_file("/failing/p=1/file", b"x")
        assert not list(FsspecStore(fs, "/failing", "x://failing", SAFE).list())

    def test_without_times_says_what_to_do(self):
        class Timeless(MemoryFileSystem):
            cachable = False
            find = AbstractFileSystem.find

            def ls(self, path, detail=True, **kwargs):
                return [{k: v for k, v in one.items() if k != "created"} for one in super().ls(path, True, **kwargs)]

            def modified(self, path):
                raise NotImplementedError

        fs = Timeless()
        fs.pipe_file("/timeless/file", b"x")
        with pytest.raises(StorageError, match="does not tell when its objects were written"):
            list(FsspecStore(fs, "/timeless", "x://timeless", SAFE).list())
