"""How files of a folder get their names: whole, exclusively, and for good.

Tests of refdelta_storage.disk, refdelta_storage.pinned.
"""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from folders import files, refuse
from refdelta_storage import (
    Committed,
    CountingStore,
    Exists,
    InvalidKeyError,
    LocalStore,
    StorageError,
    Unknown,
    naming,
    pinned,
)
from refdelta_storage import local as local_module
from refdelta_storage.disk import UNNAMED, link_open


@pytest.fixture
def named(monkeypatch):
    """No files without a name, as on most network file systems."""
    monkeypatch.setattr(naming, "UNNAMED", None)


@pytest.mark.skipif(not UNNAMED, reason="the system has no files without a name")
class TestFilesWithoutAName:
    def test_nothing_is_to_be_seen_before_the_name(self, tmp_path, monkeypatch):
        seen = []

        def look(descriptor, path):
            seen.append(files(tmp_path))
            link_open(descriptor, path)

        monkeypatch.setattr(naming, "link_open", look)
        store = LocalStore(tmp_path)
        assert isinstance(store.put_if_absent("k", b"x" * 100_000), Committed)
        assert isinstance(store.put_if_absent("k", b"y"), Exists)
        assert seen == [[]]
        assert store.get("k") == b"x" * 100_000
        assert (tmp_path / "k").stat().st_nlink == 1

    def test_of_a_stream_nothing_is_to_be_seen_before_its_end(self, tmp_path):
        store = LocalStore(tmp_path)
        with store.open_output("k") as stream:
            stream.write(b"x" * 3_000_000)
            stream.flush()
            assert files(tmp_path) == []
        assert files(tmp_path) == ["k"]
        assert store.get("k") == b"x" * 3_000_000

    def test_a_stream_replaces_what_has_the_name(self, tmp_path):
        store = LocalStore(tmp_path)
        for data in (b"old", b"new"):
            with store.open_output("k") as stream:
                stream.write(data)
                assert files(tmp_path) == (["k"] if data == b"new" else [])
            assert store.get("k") == data
        assert files(tmp_path) == ["k"]
        (tmp_path / "folder").mkdir()
        with pytest.raises(StorageError, match="folder"), store.open_output("folder") as stream:
            stream.write(b"x")
        assert files(tmp_path) == ["k"]

    @pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM])
    def test_a_stream_that_cannot_be_named_is_copied(self, tmp_path, monkeypatch, code):
        tried = []
        monkeypatch.setattr(naming, "link_open", lambda *_: tried.append(1) or refuse(code)())
        store = LocalStore(tmp_path)
        data = bytes(range(256)) * 12_000
        for key in ("k", "k", "l"):
            with store.open_output(key) as stream:
                stream.write(data)
            assert store.get(key) == data
        assert tried == [1]
        assert files(tmp_path) == ["k", "l"]

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ENOENT])
    def test_of_a_stream_that_fails_nothing_is_left(self, tmp_path, monkeypatch, code):
        open_files = len([*Path("/proc/self/fd").iterdir()])
        monkeypatch.setattr(naming, "link_open", refuse(code))
        with pytest.raises(StorageError), LocalStore(tmp_path).open_output("k") as stream:
            stream.write(b"x")
        with pytest.raises(KeyError), LocalStore(tmp_path).open_output("k"):
            raise KeyError
        assert files(tmp_path) == []
        assert len([*Path("/proc/self/fd").iterdir()]) == open_files

    def test_a_loser_is_told_so(self, tmp_path, monkeypatch):
        def lose(descriptor, path):
            Path(path).write_bytes(b"the winner's")
            link_open(descriptor, path)

        monkeypatch.setattr(naming, "link_open", lose)
        store = LocalStore(tmp_path)
        assert isinstance(store.put_if_absent("k", b"x"), Exists)
        assert store.get("k") == b"the winner's"
        (tmp_path / "folder").mkdir()
        with pytest.raises(StorageError, match="folder"):
            store.put_if_absent("folder", b"x")

    def test_an_error_after_the_link_is_a_success(self, tmp_path, monkeypatch):
        def then_fail(descriptor, path):
            link_open(descriptor, path)
            raise OSError(errno.EIO, "lost")

        monkeypatch.setattr(naming, "link_open", then_fail)
        assert isinstance(LocalStore(tmp_path).put_if_absent("k", b"x"), Committed)

    @pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
    def test_an_error_without_a_link_is_unknown(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(naming, "link_open", refuse(code))
        outcome = LocalStore(tmp_path).put_if_absent("k", b"x")
        assert isinstance(outcome, Unknown)
        assert outcome.cause.errno == code
        assert files(tmp_path) == []

    def test_a_full_disk_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setattr(naming, "link_open", refuse(errno.ENOSPC))
        with pytest.raises(StorageError):
            LocalStore(tmp_path).put_if_absent("k", b"x")
        assert files(tmp_path) == []

    @pytest.mark.parametrize(("code", "tries"), [(errno.EOPNOTSUPP, 1), (errno.EISDIR, 1), (errno.EACCES, 2)])
    def test_where_there_are_none_names_do(self, tmp_path, monkeypatch, code, tries):
        def refused(path, flags, *mode):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                tried.append(path)
                raise OSError(code, "no such files here")
            return os.open(path, flags, *mode)

        tried = []
        monkeypatch.setattr(naming, "os", SimpleNamespace(**vars(os) | {"open": refused}))
        self._names_do(tmp_path)
        assert len(tried) == tries

    @pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.ENOENT])
    def test_where_such_a_file_cannot_be_named_names_do(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(naming, "link_open", refuse(code))
        self._names_do(tmp_path)

    def _names_do(self, tmp_path):
        store = LocalStore(tmp_path)
        assert isinstance(store.put_if_absent("k", b"x"), Committed)
        assert isinstance(store.put_if_absent("k", b"y"), Exists)
        assert isinstance(store.put_if_absent("l", b"y"), Committed)
        assert files(tmp_path) == ["k", "l"]


@pytest.mark.usefixtures("named")
class TestNetworkFileSystems:
    """Replies that were lost on the way to a file server."""

    def test_a_link_that_was_sent_twice_is_ours(self, tmp_path, monkeypatch):
        link = os.link

        def twice(source, target):
            link(source, target)
            link(source, target)

        monkeypatch.setattr(local_module.os, "link", twice)
        assert isinstance(LocalStore(tmp_path).put_if_absent("k", b"x"), Committed)
        assert files(tmp_path) == ["k"]

    def test_an_error_after_the_link_is_a_success(self, tmp_path, monkeypatch):
        link = os.link

        def then_fail(source, target):
            link(source, target)
            raise OSError(errno.EIO, "lost")

        monkeypatch.setattr(local_module.os, "link", then_fail)
        assert isinstance(LocalStore(tmp_path).put_if_absent("k", b"x"), Committed)

    @pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
    def test_an_error_without_a_link_is_unknown(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(local_module.os, "link", refuse(code))
        outcome = LocalStore(tmp_path).put_if_absent("k", b"x")
        assert isinstance(outcome, Unknown)
        assert outcome.cause.errno == code
        assert files(tmp_path) == []

    def test_a_folder_that_cannot_be_synced_leaves_the_outcome_unknown(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)
        monkeypatch.setattr(naming.Naming, "_sync_folder", refuse(errno.EIO))
        assert isinstance(store.put_if_absent("k", b"x"), Unknown)
        assert store.get("k") == b"x"


@pytest.mark.usefixtures("named")
class TestWithoutHardLinks:
    @pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
    def test_the_exclusive_rename_takes_over(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(local_module.os, "link", refuse(code))
        store = LocalStore(tmp_path)
        assert isinstance(store.put_if_absent("a/k", b"x"), Committed)
        assert isinstance(store.put_if_absent("a/k", b"y"), Exists)
        assert store.capabilities.put_if_absent
        assert files(tmp_path) == ["a/k"]

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
    def test_without_either_nothing_is_committed(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(local_module.os, "link", refuse(errno.EPERM))
        monkeypatch.setattr(naming, "rename_noreplace", refuse(code))
        store = LocalStore(tmp_path)
        with pytest.raises(StorageError, match="neither hard links nor an exclusive rename"):
            store.put_if_absent("k", b"x")
        assert not store.capabilities.put_if_absent
        assert files(tmp_path) == []

    def test_the_rename_itself_is_exclusive(self, tmp_path):
        (tmp_path / "a").write_text("a")
        (tmp_path / "b").write_text("b")
        with pytest.raises(FileExistsError):
            naming.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "b"))
        naming.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "c"))
        assert files(tmp_path) == ["b", "c"]
        with pytest.raises(FileNotFoundError):
            naming.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "d"))

    def test_a_loser_of_the_rename_is_told_so(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)

        def lose(_source, target):
            Path(target).write_bytes(b"the winner's")
            raise PermissionError(errno.EPERM, "no links")

        monkeypatch.setattr(local_module.os, "link", lose)
        assert isinstance(store.put_if_absent("k", b"x"), Exists)
        assert store.get("k") == b"the winner's"
        assert files(tmp_path) == ["k"]


class TestDurability:
    def test_in_haste_nothing_is_waited_for(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)
        hasty = CountingStore(store).hasty()
        monkeypatch.setattr(local_module.os, "fsync", refuse(errno.EIO))
        assert isinstance(hasty.put_if_absent("k", b"x"), Committed)
        assert (hasty.counts["put_if_absent"], hasty.capabilities.durable) == (1, False)
        assert store.capabilities.durable
        with pytest.raises(StorageError):
            store.put_if_absent("l", b"x")
        assert store.get("k") == b"x"
        plain = LocalStore(tmp_path, fsync=False)
        assert plain.hasty() is plain

    def test_file_before_name_and_folder_after(self, tmp_path, monkeypatch):
        log = []
        fsync, link, replace = os.fsync, os.link, os.replace

        def spy_sync(descriptor):
            log.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
            fsync(descriptor)

        monkeypatch.setattr(local_module.os, "fsync", spy_sync)
        monkeypatch.setattr(local_module.os, "link", lambda *a, **k: (log.append("name"), link(*a, **k)))
        monkeypatch.setattr(local_module.os, "replace", lambda *a: (log.append("name"), replace(*a)))
        store = LocalStore(tmp_path)

        def write_stream():
            with store.open_output("z") as stream:
                stream.write(b"z")

        for write in (lambda: store.put_if_absent("x", b"x"), lambda: store.put("y", b"y"), write_stream):
            log.clear()
            write()
            assert log == ["sync file", "name", "sync folder"]
        log.clear()
        store.put_if_absent("new/folders/x", b"x")
        # Each new folder is in its parent on the disk before the file is named.
        assert log == ["sync folder", "sync folder", "sync file", "name", "sync folder"]
        log.clear()
        store = LocalStore(tmp_path, fsync=False)
        store.put_if_absent("n/x", b"")
        store.put("n/y", b"")
        write_stream()
        assert "sync file" not in log
        assert "sync folder" not in log

    def test_so_it_is_in_a_pinned_folder(self, tmp_path, monkeypatch):
        log, folders = [], {}
        fsync, link, rename = os.fsync, os.link, os.rename

        def spy_sync(descriptor):
            status = os.fstat(descriptor)
            log.append(f"sync {folders.get(status.st_ino, 'file')}")
            fsync(descriptor)

        for name in ("log", "log/p"):
            (tmp_path / name).mkdir()
            folders[(tmp_path / name).stat().st_ino] = name
        monkeypatch.setattr(local_module.os, "fsync", spy_sync)
        monkeypatch.setattr(local_module.os, "link", lambda *a, **k: (log.append("name"), link(*a, **k)))
        monkeypatch.setattr(local_module.os, "rename", lambda *a, **k: (log.append("name"), rename(*a, **k)))
        with LocalStore(tmp_path).pinned("log") as view:
            for folder in ("log", "log/p"):
                log.clear()
                view.put(f"{folder}/x", b"x")
                assert log == ["sync file", "name", f"sync {folder}"]
                log.clear()
                view.put_if_absent(f"{folder}/y", b"y")
                assert log == ["sync file", "name", f"sync {folder}"]
            log.clear()
            view.put("log/q/x", b"x")
            assert log == ["sync log", "sync file", "name", "sync file"]  # the last one is of the new folder
            log.clear()
            view.hasty().put("log/q/y", b"y")
            assert log == ["name"]


class TestNamesInAPinnedFolder:
    @pytest.fixture
    def view(self, tmp_path):
        store = LocalStore(tmp_path)
        store.put("log/old", b"old")
        with store.pinned("log") as view:
            yield view

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
    def test_a_name_that_a_power_cut_may_take_is_neither_created_nor_absent(self, view, monkeypatch, code):
        monkeypatch.setattr(pinned, "sync_folder", refuse(code))
        assert isinstance(view.put_if_absent("log/x", b"x"), Unknown)
        assert view.get("log/x") == b"x"

    @pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
    def test_a_link_of_which_nothing_is_known(self, view, monkeypatch, code):
        monkeypatch.setattr(local_module.os, "link", refuse(code))
        assert isinstance(view.put_if_absent("log/x", b"x"), Unknown)
        with pytest.raises(StorageError, match="not known whether"), view.create_output("log/x"):
            pass

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
    def test_without_links_and_exclusive_renames_nothing_is_created(self, view, monkeypatch, code):
        monkeypatch.setattr(local_module.os, "link", refuse(errno.EPERM))
        monkeypatch.setattr(pinned, "rename_noreplace", refuse(code))
        with pytest.raises(StorageError, match="cannot write 'log/x'"):
            view.put_if_absent("log/x", b"x")
        assert [info.key for info in view.list()] == ["log/old"]
        assert list(view.leftovers()) == []

    def test_a_request_that_a_network_file_system_has_sent_twice(self, view, monkeypatch):
        link = os.link

        def twice(*args, **options):
            link(*args, **options)
            link(*args, **options)

        monkeypatch.setattr(local_module.os, "link", twice)
        assert isinstance(view.put_if_absent("log/x", b"x"), Committed)
        assert isinstance(view.put_if_absent("log/x", b"y"), Exists)

    def test_a_folder_has_the_name(self, view):
        view.put("log/p/x", b"")
        with pytest.raises(StorageError, match="folder"):
            view.put_if_absent("log/p", b"")

    def test_a_link_that_leads_out_of_the_store_is_refused(self, view, tmp_path, tmp_path_factory):
        outside = tmp_path_factory.mktemp("outside")
        (outside / "x").write_bytes(b"theirs")
        (tmp_path / "log" / "out").symlink_to(outside)
        for call in (
            lambda: view.put("log/out/x", b""),
            lambda: view.put_if_absent("log/out/y", b""),
            lambda: view.delete(["log/out/x"]),
        ):
            with pytest.raises(InvalidKeyError, match="leaves"):
                call()
        assert (outside / "x").read_bytes() == b"theirs"
