"""CSV and JSON files as the rows of a table: their types, the places of errors, bad rows, compressed files, folders.

Tests of cli.text_files, cli.text_types, cli.json_values and cli.inputs.
"""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refdelta import DeltaTable
from refdelta.cli import text_files, text_types
from refdelta.cli.text_files import CsvFile, JsonFile

ROWS = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder; ``write`` takes contents by name."""
    monkeypatch.chdir(tmp_path)

    def write(**contents):
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def table(path="t"):
    return DeltaTable(path).to_pyarrow_table()


def kinds(path="t"):
    return {field.name: str(field.type) for field in table(path).schema}


def in_small_blocks(monkeypatch, size):
    monkeypatch.setattr(text_files, "BLOCK", size)


# --- one table of types ------------------------------------------------------------------------------------------

GUESSED = [
    (["1", "-5"], "int64"),
    (["9223372036854775807"], "int64"),
    (["9223372036854775808", "1"], "decimal128(38, 0)"),
    (["1", "0.5", "1e5"], "double"),
    (["true", "FALSE"], "bool"),
    (["2024-01-02"], "date32[day]"),
    (["2024-01-02", "2024-01-02T03:04"], "timestamp[us]"),
    (["2024-01-02 03:04:05.123456789"[:26]], "timestamp[us]"),
    (["2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00"], "timestamp[us, tz=UTC]"),
    (["2024-01-02 03:04:05 Europe/Berlin"], "timestamp[us, tz=UTC]"),
    (["2024-01-02 03:04:05 o'clock"], "string"),
    (["007", "1"], "string"),
    (["1", "x"], "string"),
    (["12:30:00"], "string"),
    (["", ""], "null"),
]


@pytest.mark.parametrize(("texts", "kind"), GUESSED)
def test_csv_and_json_of_the_same_text_have_the_same_type(cli, folder, texts, kind):
    folder(a_csv="k,v\n" + "".join(f"1,{text}\n" for text in texts))
    bare = kind in ("int64", "double", "bool", "decimal128(38, 0)")
    values = [text.lower() if bare else json.dumps(text) if text else "null" for text in texts]
    folder(a_json="".join(f'{{"k": 1, "v": {value}}}\n' for value in values))
    for file in ("a.csv", "a.json"):
        assert cli("write", file + ".t", file).status == 0
        assert kinds(file + ".t")["v"] == kind
    assert table("a.csv.t").equals(table("a.json.t"))


def documented():
    page = (Path(__file__).parents[2] / "docs/guide/command-line.md").read_text()
    lines = page.split("<!-- guessed: begin -->")[1].split("<!-- guessed: end -->")[0].strip().splitlines()[2:]
    return [(re.findall("`([^`]+)`", line), line.split("|")[2].strip()) for line in lines]


@pytest.mark.parametrize(("texts", "kind"), documented())
def test_the_documented_types(texts, kind):
    for parts in ([texts], [texts[:1], texts[1:]]):
        guess = text_types.Guess()
        for part in parts:
            guess.add(pa.array(part, pa.string()))
        found = guess.type(None)
        assert str(found) == kind
        for text in texts:
            assert text_types.typed(pa.array([text]), found, None).misfits is None


TABLE = [
    *(f"{kind}={kind}" for kind in ("byte", "long", "float", "double", "boolean", "string", "date", "timestamp")),
    "ntz=timestamp_ntz",
    "dec=decimal(20,3)",
]
STORED = {
    "byte": "127 1.0 1e2",
    "long": "9007199254740993 -9223372036854775808",
    "float": "0.1 16777216",
    "double": "0.12345678901234567890 1e23",
    "dec": "12345678901234567.123 1e3",
    "boolean": "true",
    "string": "x",
    "date": "2024-01-02",
    "timestamp": "2024-01-02T03:04:05Z 2024-01-02T03:04:05Europe/Berlin",
    "ntz": "2024-01-02T03:04:05 2024-01-02",
}
REFUSED = {
    "byte": "128 1.5 x",
    "long": "9223372036854775808 1.5",
    "float": "16777217 1e39",
    "double": "9007199254740993 1e400",
    "dec": "1.2345 123456789012345678.1",
    "boolean": "2",
    "date": "2024-02-30 20240102",
    "timestamp": "2024-01-02T03:04:05 2024-01-02",
    "ntz": "2024-01-02T03:04:05Z 2024-01-02T03:04:05+02:00 2024-01-02T03:04:05.1234567",
}


def in_json(column, text):
    return text if column in ("byte", "long", "float", "double", "dec", "boolean") and text != "x" else json.dumps(text)


def test_values_are_exact_in_the_types_of_a_table_or_refused_with_their_place(cli, fails, folder):
    assert cli("create", "t", *(part for one in TABLE for part in ("--column", one))).status == 0
    for column, texts in STORED.items():
        for text in texts.split(" "):
            folder(a_csv=f"{column}\n{text}\n", a_json=f'{{"{column}": {in_json(column, text)}}}\n')
            for file in ("a.csv", "a.json"):
                assert cli("write", "t", file, "--mode", "append").status == 0, (column, text)
    for column, texts in REFUSED.items():
        for text in texts.split(" "):
            folder(a_csv=f"{column}\n{text}\n", a_json=f'{{"{column}": {in_json(column, text)}}}\n')
            assert f"a.csv: line 2, column {column}: " in fails("write", "t", "a.csv", "--mode", "append")
            assert f"a.json: line 1, column {column}: " in fails("write", "t", "a.json", "--mode", "append")
    for name in STORED:
        values = table().column(name).drop_null().to_pylist()
        assert values[0::2] == values[1::2], name
    found = table()
    assert sorted({str(one) for one in found["dec"].to_pylist() if one}) == ["1000.000", "12345678901234567.123"]
    assert 9007199254740993 in found["long"].to_pylist()


def test_types_are_those_of_all_values_and_files(cli, fails, folder):
    folder(a_csv="id,n\n,\n1,\n", b_csv="n,id\nx,2.5\n")
    assert cli("write", "t", "a.csv", "b.csv").status == 0
    assert kinds() == {"id": "double", "n": "string"}
    folder(late_csv="id\n" + "1\n" * text_types.DECIDING + "oops\n")
    said = fails("write", "u", "late.csv")
    assert f"late.csv: line {text_types.DECIDING + 2}, column id" in said
    assert not Path("u/_delta_log/00000000000000000000.json").exists()
    folder(both_csv="n\n12345678901234567891\n0.5\n", long_csv="n\n" + "1" * 39 + "\n")
    assert "both.csv: line 2, column n" in fails("write", "u", "both.csv")
    assert "long.csv: line 2, column n" in fails("write", "u", "long.csv")


def test_nested_json(cli, folder):
    rows = [{"s": {"a": 1, "b": ["x"]}, "l": [{"q": 1}]}, {"s": None, "l": []}, {"s": {"a": 12345678901234567890}}, {}]
    folder(a_json="\n".join(map(json.dumps, rows)), b_json=json.dumps(rows, indent=2))
    for file in ("a.json", "b.json"):
        assert cli("write", file + ".t", file).status == 0
        assert kinds(file + ".t") == {
            "s": "struct<a: decimal128(38, 0), b: list<element: string>>",
            "l": "list<element: struct<q: int64>>",
        }
        assert int(table(file + ".t").to_pylist()[2]["s"]["a"]) == 12345678901234567890
        assert table(file + ".t").to_pylist()[3] == {"s": None, "l": None}


# --- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a_csv", 'id,v\n1,"a\nb"\r\n2,x\r3\n', "a.csv: line 5: "),
        ("a_csv", '\n\nid,v\n1,"a""\n"\n\n2\n', "a.csv: line 7: "),
        ("a_csv", 'id,v\n1,"a\n2,b\n', "a.csv: line 2: a quote"),
        ("a_csv", b"id,v\n1,a\n2,\xe9t\xe9\n", "a.csv: line 3, column v: "),
        ("a_csv", b"id,\xe9t\xe9\n1,a\n", "a.csv: line 1: "),
        ("a_csv", "id,ID\n1,a\n", "a.csv: line 1: "),
        ("a_csv", "id,\n1,a\n", "a.csv: line 1: "),
        ("a_csv", "", "a.csv: the file is empty"),
        ("a_csv", "id\n", "a.csv: there are no rows"),
        ("a_csv", "\ufeffid\n".encode("utf-16"), "a.csv: the text is UTF-16"),
        ("a_json", b'{"v": "a"}\n\n{"v": "\xe9t\xe9"}\n', "a.json: line 3, column v: "),
        ("a_json", '{"v": "a"}\r\n{"v": \r\n', "a.json: line 2: "),
        ("a_json", '[{"v": 1},\n {"v": NaN}]', "a.json: line 2: "),
        ("a_json", '[{"v": 1},\n\n 5]', "a.json: line 3: "),
        ("a_json", '[{"v": 1},\n{"v": 1}', "a.json: line 2: the array"),
        ("a_json", '[{"v": 1}]\nx', "a.json: line 2: there is text"),
        ("a_csv_gz", gzip.compress(b"id\n1\n", mtime=0)[:-9], "a.csv.gz: cannot be read"),
        ("a_json_zst", pa.compress(b'{"a": 1}', "zstd", asbytes=True)[:-2], "a.json.zst: cannot be read"),
    ],
)
def test_an_error_names_its_place_and_nothing_is_written(fails, folder, name, content, place):
    folder(**{name: content})
    assert fails("write", "t", name.replace("_", ".")).startswith(place)
    assert not Path("t/_delta_log/00000000000000000000.json").exists()


FIELD = st.text(st.sampled_from('a,"\n\r é'), max_size=5)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(FIELD, FIELD), max_size=8), st.sets(st.integers(0, 8)), st.integers(1, 9), st.booleans())
def test_lines_are_counted_as_by_another_reader(monkeypatch, rows, ragged, size, last):
    """Python's own writer quotes the fields, and its text has the lines."""
    in_small_blocks(monkeypatch, size)
    text, lines, good = io.StringIO(newline=""), [], []
    text.write("x,y\n")
    for number, row in enumerate(rows):
        wrong = number in ragged
        lines += [1 + len(text_files._LINE_END.findall(text.getvalue().encode()))] if wrong else []
        good += [] if wrong else [row]
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow([*row, "more"] if wrong else row)
    data = text.getvalue() if last else text.getvalue().removesuffix("\n")
    blocks = list(CsvFile(io.BytesIO(data.encode()), "f", ",", ()).blocks())
    found = [
        pair for block in blocks for pair in zip(*(one.to_pylist() for one in block.columns.values()), strict=True)
    ]
    assert found == good
    assert [bad.line for block in blocks for bad in block.bad] == lines


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a,"\\]}[{\n ')),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("k{", max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.text("k]", max_size=2), VALUES, max_size=2), max_size=5), st.integers(1, 9))
def test_arrays_of_objects_are_read_as_lines_are(monkeypatch, rows, size):
    in_small_blocks(monkeypatch, size)
    for text in (json.dumps(rows), json.dumps(rows, indent=1), "\n".join(map(json.dumps, rows))):
        blocks = list(JsonFile(io.BytesIO(text.encode()), "f").blocks())
        assert [value for block in blocks for value in block.values] == rows
        assert not [bad for block in blocks for bad in block.bad]
        for block in blocks:
            assert [json.loads(block.data[start:end]) for start, end in block.rows] == block.values


# --- bad rows ----------------------------------------------------------------------------------------------------


def test_bad_rows_go_to_a_file_and_the_others_into_the_table(cli, fails, folder, monkeypatch):
    assert cli("create", "t", "--column", "id=long", "--column", "v=string", "--not-null", "id").status == 0
    folder(
        a_csv='id,v\n1,"a\nb"\n2\nx,y\n3,c\n', b_csv=b"v,id\n\xe9t\xe9,4\n,\nd,5\n", c_json='{"id": 6}\n{"id": []}\n{\n'
    )
    files = ("a.csv", "b.csv", "c.json")
    said = fails("write", "t", *files[:2], "--mode", "append")
    assert said.startswith("a.csv: line 4: ")
    assert DeltaTable("t").version() == 0
    load = ("write", "t", *files, "--mode", "append", "--bad-rows", "bad.ndjson", "--app-id", "a", "--app-version", "1")
    in_small_blocks(monkeypatch, 16)
    found = cli(*load, "--json")
    assert (found.json["num_added_rows"], found.json["num_bad_rows"]) == (4, 6)
    assert sorted(table()["id"].to_pylist()) == [1, 3, 5, 6]
    bad = [json.loads(line) for line in Path("bad.ndjson").read_text().splitlines()]
    assert [(one["file"], one["line"], one["column"]) for one in bad] == [
        ("a.csv", 4, None),
        ("a.csv", 5, "id"),
        ("b.csv", 2, "v"),
        ("b.csv", 3, "id"),
        ("c.json", 2, "id"),
        ("c.json", 3, None),
    ]
    assert [one.get("text") for one in bad] == ["2", "x,y", None, ",", '{"id": []}', "{"]
    assert bad[2]["base64"]
    assert all(one["reason"] for one in bad)
    Path("bad.ndjson").unlink()
    assert cli(*load).out == "nothing was written\n"
    assert not Path("bad.ndjson").exists(), "a load that is not repeated reads nothing"
    assert len(table()) == 4


def test_lines_after_a_quote_that_is_not_closed_are_rows(cli, folder):
    folder(a_csv='id,v\n1,"a\n2,b\n3,"c"\n4,"d\n')
    assert "2 bad rows in bad" in cli("write", "t", "a.csv", "--bad-rows", "bad").out
    assert table()["id"].to_pylist() == [2, 3]


def test_a_file_without_rows_changes_nothing(cli, folder):
    folder(a_csv="id\n1\n", e_csv="id\n", e_json="", x_csv="id\nx\n")
    assert cli("write", "t", "a.csv").status == 0
    for arguments in (["e.csv"], ["e.json"], ["x.csv", "--bad-rows", "bad"]):
        assert cli("write", "t", *arguments, "--mode", "append").out.startswith("nothing was written")
    assert DeltaTable("t").version() == 0


# --- files -------------------------------------------------------------------------------------------------------

LINES = b'{"id": 1, "name": "one"}\n{"id": 2, "name": "two"}\n'
FILES = {
    "a_csv": b"id,name\n1,one\n2,two\n",
    "a_csv_gz": gzip.compress(b"id,name\n1,one\n", mtime=0) + gzip.compress(b"2,two\n", mtime=0),
    "a_csv_zst": pa.compress(b"\xef\xbb\xbfid,name\r1,one\r2,two", "zstd", asbytes=True),
    "a_json": b" [" + LINES.replace(b"\n", b",", 1) + b"] ",
    "a_json_gz": gzip.compress(LINES, mtime=0),
    "a_ndjson": LINES,
    "a_jsonl_zst": pa.compress(LINES, "zstd", asbytes=True),
}


@pytest.mark.parametrize("name", FILES)
def test_compressed_files_and_endings(cli, folder, name):
    folder(**{name: FILES[name]})
    assert cli("write", "t", name.replace("_", ".")).status == 0
    assert table().to_pylist() == ROWS


@pytest.mark.parametrize("name", ["a_csv", "a_csv_gz", "a_json", "a_jsonl_zst"])
def test_standard_input(cli, folder, monkeypatch, name):
    class Stdin:
        buffer = io.BytesIO(FILES[name])

    monkeypatch.setattr("sys.stdin", Stdin)
    assert cli("write", "t", "-", "--format", "csv" if "csv" in name else "json").status == 0
    assert table().to_pylist() == ROWS


def test_folders_and_patterns_are_read_in_the_order_of_paths(cli, fails, folder):
    folder(d__b_csv="id\n2\n", d__a_json='{"id": 1}', d__README_md="x", d__SUCCESS="", e__x_txt="")
    Path("d/SUCCESS").rename("d/_SUCCESS")
    folder(f__a_csv="id\n1\n")
    Path("d/c").mkdir()
    Path("f/a.csv").rename("d/c/a.csv")
    found = cli("write", "t", "d")
    assert found.out.startswith("version 0: 3 rows")
    assert "d/README.md" in found.err
    assert table()["id"].to_pylist() == [1, 2, 1]
    assert cli("write", "u", "d/*.csv").out.startswith("version 0: 1 row")
    assert "no file matches" in fails("write", "v", "nothing-*.csv")
    assert "e: there is no" in fails("write", "v", "e")
    assert "is a Delta table" in fails("write", "v", "t")
    assert "twice" in fails("write", "v", "d/b.csv", "d/*.csv")
    assert "--format" in fails("write", "v", "-")
    Path("p/day=1").mkdir(parents=True)
    Path("d/b.csv").rename("p/day=1/b.csv")
    assert "day=1" in fails("write", "v", "p")


@pytest.mark.parametrize("ending", ["ndjson", "jsonl", "json", "csv", "parquet"])
def test_rows_are_written_to_files_that_are_read_again(cli, folder, ending):
    folder(a_csv=FILES["a_csv"])
    assert cli("write", "t", "a.csv").status == 0
    assert cli("read", "t", "-o", f"x.{ending}").status == 0
    assert cli("write", "u", f"x.{ending}").status == 0
    assert table("u").to_pylist() == ROWS


def test_columns_that_json_objects_lack_are_missing(cli, folder):
    folder(a_csv="id,name\n1,one\n", b_json='{"id": 1}\n')
    assert cli("write", "t", "a.csv").status == 0
    assert cli("merge", "t", "b.json", "--on", "s.id = t.id", "--update", "id=s.id").status == 0
    assert table().to_pylist() == ROWS[:1]
