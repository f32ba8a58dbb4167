"""What is particular to folders: processes, disks that fill, forbidden folders, links, and files of others."""

import errno
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from folders import files, refuse
from refdelta_storage import (
    Committed,
    InvalidKeyError,
    LocalStore,
    ObjectNotFoundError,
    StorageError,
)
from refdelta_storage import local as local_module
from refdelta_storage.disk import UNNAMED
from refdelta_storage.testing import watch


def child(code, *arguments, check=True):
    """Run code in a new interpreter; its output, lines."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=120)


class TestRaces:
    RACER = """
        import sys, time
        from concurrent.futures import ThreadPoolExecutor
        from refdelta_storage import Committed, LocalStore
        root, name, start, rounds = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
        store = LocalStore(root)
        print("ready", flush=True)
        sys.stdin.readline()

        def write(thread, round):
            data = f"{name}.{thread}.".encode() * 5000
            return type(store.put_if_absent(f"_delta_log/{round:020d}.json", data)) is Committed

        with ThreadPoolExecutor(10) as pool:
            for round in range(rounds):
                won = list(pool.map(write, range(10), [round] * 10))
                print(round, *(f"{name}.{thread}" for thread in range(10) if won[thread]), flush=True)
    """

    @pytest.mark.tier("test")
    def test_one_of_fifty_writers_in_five_processes_wins(self, tmp_path):
        rounds = 25
        code = textwrap.dedent(self.RACER)
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path), str(number), str(time.time()), str(rounds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(5)
        ]
        store = LocalStore(tmp_path)
        keys = [f"_delta_log/{number:020d}.json" for number in range(rounds)]
        values = [f"{process}.{thread}.".encode() * 5000 for process in range(5) for thread in range(10)]
        outputs = []

        def run(_number):
            for racer in racers:
                assert racer.stdout.readline() == "ready\n"
            for racer in racers:
                racer.stdin.write("go\n")
                racer.stdin.flush()
            outputs.extend(racer.communicate(timeout=120)[0] for racer in racers)

        watch(store, keys, values, run, 1)
        winners = {}
        for output in outputs:
            for line in output.splitlines():
                number, *won = line.split()
                winners.setdefault(int(number), []).extend(won)
        assert sorted(winners) == list(range(rounds))
        for number, won in winners.items():
            assert len(won) == 1, f"round {number}: {won}"
            assert store.get(keys[number]) == f"{won[0]}.".encode() * 5000
        assert files(tmp_path) == keys

    @pytest.mark.tier("test")
    def test_a_writer_that_dies_leaves_nothing_to_see(self, tmp_path):
        code = """
            import os, sys
            from refdelta_storage import LocalStore
            store = LocalStore(sys.argv[1])
            if sys.argv[2] == "stream":
                with store.open_output("a/x") as stream:
                    stream.write(b"half")
                    stream.flush()
                    os._exit(3)
            os.link = os.replace = lambda *_, **__: os._exit(3)
            getattr(store, sys.argv[2])("a/x", b"half")
        """
        store = LocalStore(tmp_path)
        for way in ("stream", "put", "put_if_absent"):
            assert child(code, tmp_path, way, check=False).returncode == 3
            assert list(store.list()) == []
            with pytest.raises(ObjectNotFoundError):
                store.get("a/x")
        # The temporary files of the dead, hidden; a file that never had a name is gone.
        assert len(files(tmp_path)) == (2 if UNNAMED else 3)
        assert isinstance(store.put_if_absent("a/x", b"whole"), Committed)

    def test_another_process_opens_a_pickled_store(self, tmp_path):
        store = LocalStore(tmp_path, fsync=False)
        store.put("x", b"data")
        code = """
            import pickle, sys
            store = pickle.loads(bytes.fromhex(sys.argv[1]))
            print(store.get("x"), store.capabilities.durable)
        """
        assert child(code, pickle.dumps(store).hex()).stdout == "b'data' False\n"


def write_stream(store):
    with store.open_output("a/k") as stream:
        for _ in range(30):
            stream.write(b"x" * 10_000)


WRITES = {
    "put": lambda store: store.put("a/k", b"x" * 300_000),
    "put_if_absent": lambda store: store.put_if_absent("a/k", b"x" * 300_000),
    "stream": write_stream,
}


class TestTrouble:
    @pytest.mark.parametrize("way", WRITES)
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
    def test_a_full_disk(self, tmp_path, monkeypatch, way, code):
        def write(*_args):
            raise OSError(code, os.strerror(code))

        store = LocalStore(tmp_path)
        monkeypatch.setattr(local_module.os, "write", write)
        monkeypatch.setattr(local_module, "OutputFile", failing_output(code))
        with pytest.raises(StorageError, match=r"cannot write 'a/k'|cannot create 'a/k'") as error:
            WRITES[way](store)
        assert error.value.errno == code
        assert os.strerror(code) in str(error.value)
        assert files(tmp_path) == []

    @pytest.mark.parametrize("way", WRITES)
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
    def test_a_folder_that_takes_no_new_name(self, tmp_path, monkeypatch, way, code):
        store = LocalStore(tmp_path)
        for name in ("link", "replace"):
            monkeypatch.setattr(local_module.os, name, refuse(code))
        with pytest.raises(StorageError, match="'a/k'") as error:
            WRITES[way](store)
        assert error.value.errno == code
        assert files(tmp_path) == []

    @pytest.mark.tier("test")
    def test_a_limit_on_the_size_of_files(self, tmp_path):
        code = """
            import resource, sys
            from pathlib import Path
            from refdelta_storage import LocalStore, StorageError
            import pyarrow as pa, pyarrow.parquet as pq
            store = LocalStore(sys.argv[1])
            store.put("old", b"old")
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

            def parquet():
                with store.open_output("x.parquet") as stream:
                    pq.write_table(pa.table({"n": range(100_000)}), stream, use_dictionary=False, compression="none")

            def stream():
                with store.open_output("x") as stream:
                    stream.write(b"x" * 200_000)

            for write in (lambda: store.put("old", b"x" * 200_000), lambda: store.put_if_absent("x", b"x" * 200_000),
                          stream, parquet):
                try:
                    write()
                except StorageError as error:
                    print(error.errno, error)
            print([path.name for path in Path(sys.argv[1]).iterdir()], store.get("old"))
        """
        *errors, last = child(code, tmp_path).stdout.splitlines()
        assert len(errors) == 4
        assert all(line.startswith(f"{errno.EFBIG} cannot ") for line in errors)
        assert last == "['old'] b'old'"

    def test_forbidden_folders_and_files(self):
        # The folder that pytest gives is closed to others, and root is forbidden nothing: so a child that is nobody.
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for folder in ("table", "table/closed", "table/log"):
                (root / folder).mkdir()
            for file in ("table/x", "table/secret", "table/closed/y", "table/log/0.json"):
                (root / file).write_text("data")
            (root / "table/secret").chmod(0)
            (root / "table/closed").chmod(0)
            for folder in ("table/log", "table", "."):
                (root / folder).chmod(0o555)
            code = """
                import os, sys
                from refdelta_storage import LocalStore, ObjectNotFoundError, StorageError
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                store = LocalStore(sys.argv[1] + "/table")

                def stream():
                    with store.open_output("log/1.json") as stream:
                        stream.write(b"x")

                for call in (
                    lambda: store.put("log/1.json", b""), lambda: store.put_if_absent("log/1.json", b""), stream,
                    lambda: store.put("new/k", b""), lambda: store.delete(["log/0.json", "x"]),
                    lambda: store.get("secret"), lambda: store.open_input("secret"), lambda: list(store.list()),
                    lambda: store.get("closed/y"), lambda: store.head("closed/y"),
                    lambda: LocalStore(sys.argv[1] + "/other", create=True),
                ):
                    try:
                        call()
                        print("nothing was raised")
                    except StorageError as error:
                        print(error.errno, isinstance(error, ObjectNotFoundError), str(error).partition(" in file:")[0])
                print(store.get("x"), store.put_if_absent("log/0.json", b""), [info.key for info in store.list("log/")])
            """
            try:
                lines = child(code, root).stdout.splitlines()
            finally:
                for folder in (".", "table", "table/log", "table/closed"):
                    (root / folder).chmod(0o755)
            assert lines == [
                "13 False cannot write 'log/1.json'",
                "13 False cannot create 'log/1.json'",
                "13 False cannot write 'log/1.json'",
                "13 False cannot write 'new/k'",
                "13 False cannot delete 'log/0.json'",
                "13 False cannot read 'secret'",
                "13 False cannot read 'secret'",
                "13 False cannot list 'closed'",
                "13 False cannot read 'closed/y'",
                "13 False cannot read 'closed/y'",
                "13 False cannot create '.'",
                "b'data' Exists() ['log/0.json']",
            ]
            assert files(root) == ["table/closed/y", "table/log/0.json", "table/secret", "table/x"]

    def test_files_where_folders_are_needed(self, tmp_path):
        store = LocalStore(tmp_path)
        store.put("file", b"x")
        store.put("folder/x", b"x")
        for call in (
            lambda: store.put("file/k", b""),
            lambda: store.put_if_absent("file/k", b""),
            lambda: store.open_output("file/k").__enter__(),
            lambda: store.put("folder", b""),
            lambda: store.put_if_absent("folder", b""),
            lambda: store.put("n" * 300, b""),
            lambda: store.put_if_absent("n" * 300, b""),
        ):
            with pytest.raises(StorageError, match="cannot ") as error:
                call()
            assert not isinstance(error.value, ObjectNotFoundError)
        assert files(tmp_path) == ["file", "folder/x"]

    def test_a_root_that_is_a_file(self, tmp_path):
        (tmp_path / "f").write_text("")
        with pytest.raises(StorageError, match="not a folder"):
            LocalStore(tmp_path / "f")
        with pytest.raises(StorageError, match=r"(?i)not a directory|not a folder"):
            LocalStore(tmp_path / "f" / "g", create=True)

    @pytest.mark.tier("test")
    def test_a_root_that_comes_and_goes_is_never_taken_for_a_file(self, tmp_path):
        root, over = tmp_path / "root", threading.Event()

        def come_and_go():
            while not over.is_set():
                root.mkdir()
                root.rmdir()

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(come_and_go)
            try:
                for _ in range(5_000):
                    LocalStore(root)
            finally:
                over.set()
            other.result()

    def test_one_failure_does_not_stop_a_bulk_delete(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)
        for key in "abc":
            store.put(key, b"")
        unlink = os.unlink

        def sometimes(path):
            if path.endswith("/a"):
                raise OSError(errno.EIO, "broken")
            unlink(path)

        monkeypatch.setattr(local_module.os, "unlink", sometimes)
        with pytest.raises(StorageError, match="cannot delete 'a'"):
            store.delete(["a", "b", "c"])
        assert files(tmp_path) == ["a"]


def failing_output(code):
    """The raw stream, on a disk that fills after 100,000 bytes."""

    class Failing(local_module.OutputFile):
        def write(self, data, /):
            if self.tell() + len(data) > 100_000:
                raise self._translate(OSError(code, os.strerror(code)))
            return super().write(data)

    return Failing


class TestLinks:
    @pytest.fixture
    def linked(self, tmp_path):
        """A table with links to a file and to a folder outside, and to ones inside."""
        outside, table = tmp_path / "outside", tmp_path / "table"
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_text("secret")
        (outside / "folder" / "x").write_text("secret")
        store = LocalStore(table)
        store.put("real/x", b"inside")
        for name, target in {
            "bad": outside / "file",
            "badfolder": outside / "folder",
            "gone": tmp_path / "nowhere",
            "good": table / "real" / "x",
            "goodfolder": table / "real",
            "loop": table,
        }.items():
            (table / name).symlink_to(target)
        return store

    def test_a_key_does_not_leave_the_folder(self, linked, tmp_path):
        for key in ("bad", "badfolder/x", "badfolder/new", "badfolder/new/y"):
            for call in (
                linked.get,
                linked.head,
                linked.open_input,
                linked.local_path,
                lambda key: linked.get_range(key, 0, 1),
                lambda key: linked.put(key, b""),
                lambda key: linked.put_if_absent(key, b""),
                lambda key: linked.delete([key]),
                lambda key: linked.open_output(key).__enter__(),
            ):
                with pytest.raises(InvalidKeyError, match="symbolic link"):
                    call(key)
        with pytest.raises(InvalidKeyError, match="symbolic link"):
            linked.list("badfolder/")
        assert files(tmp_path / "outside") == ["file", "folder/x"]

    def test_links_within_work_and_listings_stay_inside(self, linked):
        assert linked.get("good") == linked.get("goodfolder/x") == b"inside"
        assert [info.key for info in linked.list()] == ["good", "real/x"]
        assert linked.head("good").size == 6

    def test_the_root_itself_may_be_a_link(self, linked, tmp_path):
        (tmp_path / "alias").symlink_to(tmp_path / "table")
        store = LocalStore(tmp_path / "alias")
        assert store.get("real/x") == store.get("good") == b"inside"
        assert store.uri == (tmp_path / "alias").as_uri()


class TestFilesOfOthers:
    def test_checksums_of_hadoop_go_with_their_files(self, tmp_path):
        store = LocalStore(tmp_path)
        for name in ("_last_checkpoint", "1.json", "2.json", "part"):
            store.put(f"log/{name}", b"old")
            (tmp_path / "log" / f".{name}.crc").write_bytes(b"crc\0")
        (tmp_path / "log" / ".3.json.crc").write_bytes(b"stale")
        assert [info.key for info in store.list()] == ["log/1.json", "log/2.json", "log/_last_checkpoint", "log/part"]
        store.put("log/_last_checkpoint", b"new")
        store.put_if_absent("log/3.json", b"new")
        store.put_if_absent("log/2.json", b"loser")
        store.delete(["log/1.json"])
        with store.open_output("log/part") as stream:
            stream.write(b"new")
        assert files(tmp_path) == ["log/.2.json.crc", "log/2.json", "log/3.json", "log/_last_checkpoint", "log/part"]

    def test_writes_through_a_pinned_folder_remove_them_too(self, tmp_path):
        store = LocalStore(tmp_path)
        for name in ("1.json", "2.json", "3.json"):
            store.put(f"log/{name}", b"old")
            (tmp_path / "log" / f".{name}.crc").write_bytes(b"crc\0")
        (tmp_path / "log" / ".4.json.crc").write_bytes(b"stale")
        with store.pinned("log") as pinned:
            pinned.put("log/1.json", b"new")
            pinned.delete(["log/2.json"])
            assert isinstance(pinned.put_if_absent("log/4.json", b"new"), Committed)
        assert files(tmp_path) == ["log/.3.json.crc", "log/1.json", "log/3.json", "log/4.json"]

    def test_names_that_are_not_ours_to_use(self, tmp_path):
        store = LocalStore(tmp_path)
        for key in (".a.crc", "b/.a.crc", f"{local_module.TEMPORARY}x"):
            for call in (store.get, lambda key: store.put(key, b""), lambda key: store.put_if_absent(key, b"")):
                with pytest.raises(InvalidKeyError, match="reserved"):
                    call(key)
        with pytest.raises(InvalidKeyError, match="reserved"):
            store.delete([".a.crc"])
        store.put("00000000000000000000.crc", b"")  # Delta's own, which is an object
        assert [info.key for info in store.list()] == ["00000000000000000000.crc"]

    def test_what_a_killed_writer_leaves_is_found_and_deleted(self, tmp_path):
        code = """
            import sys
            from refdelta_storage import LocalStore
            with LocalStore(sys.argv[1]).open_output("p=1/x") as stream:
                stream.write(bytes(2_000_000))
                stream.flush()
                print("written", flush=True)
                sys.stdin.read()
        """
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "written\n"
            writer.kill()
        store = LocalStore(tmp_path)
        store.put("p=1/y", b"")
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).mkdir()
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/" + local_module.TEMPORARY.encode())).write_text("of others")
        (left,) = store.leftovers()
        assert left.key.startswith(f"p=1/{local_module.TEMPORARY}")
        assert left.size == 2_000_000
        assert abs(left.mtime_ms / 1000 - time.time()) < 60
        assert [info.key for info in store.list()] == ["p=1/y"]
        store.delete([left.key])
        assert list(store.leftovers()) == []
        assert store.get("p=1/y") == b""

    def test_what_is_no_file_is_not_listed(self, tmp_path):
        store = LocalStore(tmp_path)
        store.put("x", b"")
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "empty folder").mkdir()
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("no UTF-8")
        assert [info.key for info in store.list()] == ["x"]
        with pytest.raises(ObjectNotFoundError):
            store.head("pipe")

    def test_files_that_vanish_during_a_listing_are_left_out(self, tmp_path):
        store = LocalStore(tmp_path)
        for key in ("a", "b", "c/d"):
            store.put(key, b"")
        listing = store.list()
        assert next(listing).key == "a"
        store.delete(["b", "c/d"])
        (tmp_path / "c").rmdir()
        assert list(listing) == []


class TestListing:
    def test_only_the_folders_of_the_prefix_are_read(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)
        for key in ("_delta_log/0001.json", "_delta_log/0002.json", "_delta_log/_sidecars/x", "p=1/x", "p=2/q=3/x"):
            store.put(key, b"")
        seen, scandir = [], os.scandir

        def spy(path):
            seen.append(os.path.relpath(path, tmp_path))
            return scandir(path)

        monkeypatch.setattr(local_module.os, "scandir", spy)
        for arguments, folders in {
            ("_delta_log/0",): ["_delta_log"],
            ("_delta_log/", "_delta_log/_sidecars0"): ["_delta_log"],
            ("p=2",): [".", "p=2", "p=2/q=3"],
            ("", "p=10"): [".", "p=2", "p=2/q=3"],
            ("", "p=1/a"): [".", "p=1", "p=2", "p=2/q=3"],
            ("x",): ["."],
        }.items():
            seen.clear()
            list(store.list(*arguments))
            assert seen == folders, arguments

    def test_a_relative_root_stays_where_it_was(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        store = LocalStore("table")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.put("x", b"1")
        assert files(tmp_path) == ["table/x"]
        assert store.uri == (tmp_path / "table").as_uri()

    def test_create_makes_the_folder_at_once(self, tmp_path):
        LocalStore(tmp_path / "a" / "b", create=True)
        assert (tmp_path / "a" / "b").is_dir()
        LocalStore(tmp_path / "a" / "b", create=True)
        assert list(LocalStore(tmp_path / "c").list()) == []
        assert not (tmp_path / "c").exists()


def test_parquet_goes_through_the_streams(tmp_path):
    table = pa.table({"n": range(1000), "s": [str(n) for n in range(1000)]})
    store = LocalStore(tmp_path)
    with store.open_output("p=1/x.parquet") as stream, pq.ParquetWriter(stream, table.schema) as writer:
        writer.write_table(table)
    with store.open_input("p=1/x.parquet") as stream:
        assert pq.read_table(stream) == table
    assert pq.read_table(store.local_path("p=1/x.parquet"), partitioning=None) == table


def test_new_files_have_the_permissions_of_others(tmp_path):
    store = LocalStore(tmp_path)
    (tmp_path / "plain").write_text("")
    store.put_if_absent("a", b"")
    store.put("b", b"")
    with store.open_output("c"):
        pass
    modes = {(tmp_path / name).stat().st_mode for name in ("plain", "a", "b", "c")}
    assert len(modes) == 1


class TestManyAtOnce:
    """What is read or listed by the folder is what single looks find."""

    def test_files_of_one_folder_are_what_each_by_itself_is(self, tmp_path):
        store = LocalStore(tmp_path / "t", create=True)
        for name in ("a", "b", "sub/c", ".d", "\u00e4"):
            store.put(f"f/{name}", name.encode() * 3)
        (tmp_path / "t/f/link").symlink_to(tmp_path / "t/f/a")
        (tmp_path / "t/f/empty").touch()
        keys = ["f/a", "f/b", "f/link", "f/empty", "f/sub/c", "f/.d", "f/\u00e4", "f/a"]
        assert store.get_many(keys) == [store.get(key) for key in keys]

    @pytest.mark.parametrize("bad", ["f/missing", "f/pipe", "f/out", "f/folder", "f/..", "f//a", "f/a/"])
    def test_what_cannot_be_read_is_refused_as_by_itself(self, tmp_path, bad):
        store = LocalStore(tmp_path / "t", create=True)
        store.put("f/a", b"1")
        store.put("f/folder/x", b"1")
        (tmp_path / "secret").write_bytes(b"2")
        (tmp_path / "t/f/out").symlink_to(tmp_path / "secret")
        os.mkfifo(tmp_path / "t/f/pipe")
        with pytest.raises(StorageError) as alone:
            store.get(bad)
        with pytest.raises(StorageError) as among:
            store.get_many(["f/a", bad])
        assert (type(among.value), str(among.value)) == (type(alone.value), str(alone.value))

    @pytest.mark.parametrize("link", [False, True])
    def test_keys_are_those_of_the_listing(self, tmp_path, link):
        store = LocalStore(tmp_path / "t", create=True)
        for name in ("1", "2", "3"):
            store.put(f"f/{name}", b"")
        if link:
            (tmp_path / "t/f/4").symlink_to(tmp_path / "elsewhere")
            store.put("f/25/x", b"")
        for prefix, after in (("f/", None), ("f/", "f/1"), ("f/2", "f/2"), ("", None), ("nowhere/", None)):
            assert store.list_keys(prefix, after) == [info.key for info in store.list(prefix, after)]
