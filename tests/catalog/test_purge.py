"""``drop_table(purge=True)`` deletes the files of its table, all of them, and no other: random trees of folders."""

import random
import re
import uuid

import pyarrow as pa
import pytest

from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog, own_files
from refdelta.transaction import background
from refdelta_storage import open_store

ROWS = pa.table({"a": pa.array(range(20), pa.int64()), "p": ["x", "y/z"] * 10, "q": ["1"] * 20})
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def other_table():
    """The files of a table of another program."""
    where = f"memory://{uuid.uuid4()}"
    write_deltalake(where, ROWS)
    store = open_store(where)
    return {info.key: store.get(info.key) for info in store.list()}


class Tree:
    """A table of a catalog with some history, and beside its files others that a folder may have."""

    def __init__(self, seed, folder, root, options):
        self.dice = random.Random(seed)
        self.catalog = SqlCatalog(
            f"sqlite:///{folder}/{uuid.uuid4()}.db", storage_options=options, locations=[root, str(folder)]
        )
        self.root, self.options = root, options
        # Spaces in memory are apart: there, only a table's own store shows its files.
        self.nests = not root.startswith("memory:")
        self.store = open_store(root if self.nests else f"{root}/t", options)
        self.around = self.nests and self.dice.random() < 0.2
        self.partitions = self.dice.choice([[], ["p"], ["p", "q"]])
        self.gone = set()
        self.place = "g/t" if self.around else "t"
        if self.around:
            self.catalog.create_table("s.around", ROWS.schema, location=f"{root}/g")
            write_deltalake(self.catalog.table("s.around"), ROWS, mode="append")
        self.table()
        background.settle()
        own = {key for key in self.keys() if key.startswith(f"{self.place}/")}
        self.plant()
        background.settle()
        self.kept = {key: self.get(key) for key in self.keys() - own - self.gone}

    def keys(self):
        return {info.key if self.nests else f"t/{info.key}" for info in self.store.list()}

    def get(self, key):
        return self.store.get(key if self.nests else key.removeprefix("t/"))

    def put(self, key, data):
        if self.nests or key.startswith("t/"):
            self.store.put(key if self.nests else key.removeprefix("t/"), data)

    def part(self, kind="part"):
        return f"{kind}-00000-{uuid.UUID(int=self.dice.getrandbits(128))}-c000.snappy.parquet"

    def vector(self):
        return f"deletion_vector_{uuid.UUID(int=self.dice.getrandbits(128))}.bin"

    def table(self):
        kind = self.dice.choice(["staged", "inline", "registered"])
        location = f"{self.root}/{self.place}"
        if kind == "registered":
            write_deltalake(location, ROWS.slice(0, 0), partition_by=self.partitions, storage_options=self.options,
                            configuration=PROPERTIES)  # fmt: skip
            table = self.catalog.register_table("s.t", location)
        else:
            table = self.catalog.create_table("s.t", ROWS.schema, location, self.partitions, PROPERTIES, commits=kind)
        self.managed = kind != "registered"
        for _ in range(self.dice.randrange(6)):
            match self.dice.randrange(6):
                case 0 | 1:
                    write_deltalake(table, ROWS, mode="append")
                case 2:
                    table.delete("a % 7 = 3")
                case 3:
                    table.update({"a": "a + 1"}, predicate="a = 4")
                case 4:
                    table.create_checkpoint()
                case 5:
                    write_deltalake(table, ROWS, mode="overwrite")

    def folders(self):
        """Folders of the table: its own, and those of its partitions."""
        found = [""]
        if self.partitions == ["p"]:
            found += ["p=x/", "p=new/"]
        if self.partitions == ["p", "q"]:
            found += ["p=x/q=1/"]
        return found

    def plant(self):
        """Leftovers of writers, which go, and things of others, which stay."""
        dice, t = self.dice, f"{self.place}/"
        for _ in range(dice.randrange(1, 12)):
            match dice.randrange(10):
                case 0:  # in the folder of another table around it, leftovers may be that table's files
                    key = t + dice.choice(self.folders()) + dice.choice([self.part(), self.part("cdc"), self.vector()])
                    self.put(key, b"leftover")
                    if not self.around:
                        self.gone.add(key)
                case 1:
                    key = f"{t}_change_data/{dice.choice(['', 'p=x/'])}{self.part('cdc')}"
                    self.put(key, b"leftover")
                    self.gone.add(key)
                case 2:
                    name = dice.choice(
                        ["precious.txt", "_SUCCESS", "data.parquet", ".keep", "part-1.parquet", "a b%20"]
                    )
                    self.put(t + dice.choice([*self.folders(), "docs/", "_change_data/", "p=x/"]) + f"_{name}",
                                   b"foreign")  # fmt: skip
                case 3:  # a dataset without a log, of the names that Spark gives
                    where = dice.choice(["backup/", "a/b/", "old=1/x/", "v1/"])
                    self.put(t + where + self.part(), b"foreign")
                case 4 | 5:
                    where = dice.choice(["sub", "p=x/nested", "a/b", "_change_data/deep", "p=x", "part-00000.parquet"])
                    if f"{t}{where}/_delta_log/00000000000000000000.json" not in self.keys() and not (
                        where == "p=x" and self.partitions
                    ):
                        for key, data in other_table().items():
                            self.put(f"{t}{where}/{key}", data)
                        self.put(f"{t}{where}/{self.part()}", b"a leftover of another table")
                case 6 if self.nests:
                    name = f"s.inner{dice.randrange(10**9)}"
                    self.catalog.create_table(name, ROWS.schema, f"{self.root}/{t}in/{name}")
                    write_deltalake(self.catalog.table(name), ROWS, mode="append")
                case 7:
                    self.put(f"{self.place}2/{self.part()}", b"a folder beside")
                case 8:
                    self.put(f"{t}x/_delta_log/note.txt", b"the log of another table, which is being made")
                    self.put(f"{t}x/{self.part()}", b"foreign")
                case 9:
                    self.put(f"{t}{dice.choice(['A', 'ab', 'x=y'])}/{self.vector()}", b"of a folder that is not known")

    def purge(self):
        self.catalog.drop_table("s.t", purge=True)

    def differences(self):
        """What is wrong after the purge."""
        there = self.keys()
        found = [f"{key} stays" for key in sorted(there - self.kept.keys())]
        found += [f"{key} is gone" for key in sorted(self.kept.keys() - there)]
        return found + [f"{key} is changed" for key in self.kept.keys() & there if self.get(key) != self.kept[key]]


def search(folder, root, options, seeds):
    wrong = {}
    for seed in seeds:
        tree = Tree(seed, folder, f"{root}/{seed}", options)
        tree.purge()
        if found := tree.differences():
            wrong[seed] = found
        assert "s.t" not in tree.catalog.tables()
        tree.catalog.close()
    return wrong


@pytest.mark.tier("test")
def test_exactly_the_files_of_the_table_go_in_memory(tmp_path):
    assert search(tmp_path, f"memory://{uuid.uuid4()}", None, range(25)) == {}


@pytest.mark.tier("test")
def test_exactly_the_files_of_the_table_go_on_the_disk(tmp_path):
    assert search(tmp_path, str(tmp_path), None, range(100, 110)) == {}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("rule", ["folders of partitions", "files that the log names", "foreign change data"])
def test_the_search_finds_a_rule_that_is_left_out(tmp_path, monkeypatch, rule):
    if rule == "folders of partitions":
        monkeypatch.setattr(own_files, "_partitions", lambda _: re.compile(".*"))
    elif rule == "files that the log names":
        monkeypatch.setattr(own_files, "_keys", lambda *_: [])
        monkeypatch.setattr(own_files, "_partitions", lambda _: re.compile("$^"))
    else:
        monkeypatch.setattr(own_files, "_CHANGES", re.compile("_change_data/.*"))
    assert search(tmp_path, f"memory://{uuid.uuid4()}", None, range(25))


def test_a_second_name_of_a_folder_is_not_purged(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    with SqlCatalog(f"sqlite:///{tmp_path}/c.db") as catalog:
        catalog.register_table("s.one", tmp_path / "t")
        catalog.register_table("s.two", (tmp_path / "t").as_uri() + "/")
        with pytest.raises(errors.InvalidArgumentError, match=r"s.one is not purged: s.two has the same folder"):
            catalog.drop_table("s.one", purge=True)
        assert catalog.table("s.one").count() == catalog.table("s.two").count() == 20
        catalog.drop_table("s.two")
        catalog.drop_table("s.one", purge=True)
    assert not list((tmp_path / "t").rglob("*.*"))


def test_it_says_which_files_stay(tmp_path, caplog):
    with SqlCatalog(f"sqlite:///{tmp_path}/c.db") as catalog:
        write_deltalake(catalog.create_table("s.t", ROWS.schema, tmp_path / "t"), ROWS, mode="append")
        background.settle()
        for number in range(12):
            (tmp_path / "t" / f"note\x1b{number:02d}.txt").write_text("mine")
        catalog.drop_table("s.t", purge=True)
    (record,) = caplog.records
    assert "12 files" in record.getMessage()
    assert "and 2 more" in record.getMessage()
    assert record.getMessage().isprintable()
    assert len(list((tmp_path / "t").rglob("*.txt"))) == 12


@pytest.mark.tier("nightly")
def test_exactly_the_files_of_the_table_go_in_many_trees(tmp_path):
    assert search(tmp_path, f"memory://{uuid.uuid4()}", None, range(1000, 1400)) == {}


@pytest.mark.tier("test")
def test_exactly_the_files_of_the_table_go_on_s3(tmp_path, s3_server):
    place = s3_server.place("purged")
    assert search(tmp_path, place.uri, place.options, range(200, 204)) == {}
