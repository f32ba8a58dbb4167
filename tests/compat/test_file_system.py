"""``deltalake.fs.DeltaStorageHandler``, compared with deltalake's own."""

from __future__ import annotations

import importlib
import pickle

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
BOTH = pytest.mark.parametrize("library", ["deltalake", "refdelta.compat.deltalake"], ids=["deltalake", "compat"])
ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]})


@pytest.fixture
def files(tmp_path, library):
    handler = importlib.import_module(f"{library}.fs").DeltaStorageHandler
    return pa_fs.PyFileSystem(handler(str(tmp_path)))


@BOTH
def test_a_dataset_is_written_and_read(tmp_path, files):
    partitioning = ds.partitioning(pa.schema([("p", pa.string())]), flavor="hive")
    ds.write_dataset(ROWS, "made", partitioning=partitioning, format="parquet", filesystem=files)
    assert sorted(path.parent.name for path in tmp_path.rglob("*.parquet")) == ["p=a", "p=b"]
    read = ds.dataset("made", format="parquet", filesystem=files, partitioning=partitioning)
    assert read.to_table().sort_by("id").equals(ROWS)


# deltalake's own copy_file() raises a TypeError.
@pytest.mark.parametrize("library", ["refdelta.compat.deltalake"])
def test_files_are_listed_copied_moved_and_deleted(files):
    for name in ("one/a.parquet", "one/two/b.parquet", "one2/c.parquet"):
        pq.write_table(ROWS, name, filesystem=files)

    def listed(folder, *, recursive=True):
        found = files.get_file_info(pa_fs.FileSelector(folder, recursive=recursive))
        return sorted(each.path.strip("/") for each in found if each.type == pa_fs.FileType.File)

    assert listed("one") == ["one/a.parquet", "one/two/b.parquet"]
    assert listed("one", recursive=False) == ["one/a.parquet"]
    files.copy_file("one/a.parquet", "one/d.parquet")
    files.move("one2/c.parquet", "one/e.parquet")
    files.delete_file("one/two/b.parquet")
    assert listed("/") == ["one/a.parquet", "one/d.parquet", "one/e.parquet"]
    files.delete_dir("one")
    files.delete_dir("nothing")
    assert listed("/") == []
    assert files.get_file_info("one/a.parquet").type == pa_fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        files.open_input_file("one/a.parquet")


@BOTH
def test_known_sizes_pickles_and_the_folder_of_a_table(tmp_path, library):
    module = importlib.import_module(f"{library}.fs")
    pq.write_table(ROWS, tmp_path / "a.parquet")
    handler = module.DeltaStorageHandler(str(tmp_path), known_sizes={"a.parquet": 77})
    assert pa_fs.PyFileSystem(handler).open_input_file("a.parquet").size() == 77
    again = pickle.loads(pickle.dumps(module.DeltaStorageHandler(str(tmp_path))))
    assert again.get_file_info(["a.parquet"])[0].size == (tmp_path / "a.parquet").stat().st_size
    importlib.import_module(library).write_deltalake(str(tmp_path / "t"), ROWS)
    table = importlib.import_module(library).DeltaTable(str(tmp_path / "t"))
    whole = pa_fs.PyFileSystem(module.DeltaStorageHandler.from_table(table._table))
    name = table.get_add_actions().column("path").to_pylist()[0]
    assert pq.read_table(name, filesystem=whole).equals(ROWS)


@pytest.mark.parametrize("library", ["refdelta.compat.deltalake"])
def test_a_file_appears_when_it_is_closed(tmp_path, files):
    stream = files.open_output_stream("late.bin")
    stream.write(b"abc")
    assert not (tmp_path / "late.bin").exists()
    stream.close()
    assert (tmp_path / "late.bin").read_bytes() == b"abc"
