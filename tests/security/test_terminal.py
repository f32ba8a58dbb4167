"""What a table's maker wrote does not steer the terminal of who looks at it, nor pretend to be another text."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pyarrow as pa
import pytest

import refdelta
from handmade import Handmade, add, field, struct
from refdelta import DeltaTable
from refdelta.cli import catalogs, main
from refdelta.errors import DeltaError
from refdelta_storage import LocalStore, StorageError

# A window's title, a cleared screen, colours in both spellings, and letters that run from right to left.
STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\x7f\r\b"


def steers(text: str) -> list[str]:
    return [character for character in text if not character.isprintable() and character not in "\n\t"]


@pytest.fixture
def table(tmp_path):
    name = f"a{STEERING}"
    made = Handmade(struct(field(name, "string")), store=LocalStore(tmp_path))
    data = made.data("x.parquet", pa.table({name: [f"v{STEERING}", "w"]}))
    info = {
        "timestamp": 1,
        "operation": f"WRITE{STEERING}",
        "operationParameters": {f"k{STEERING}": STEERING},
        "operationMetrics": {STEERING: STEERING},
        "userName": STEERING,
    }
    made.commit({"commitInfo": info}, data)
    made.commit(add("y%1B%5B2J%0D.parquet", rows=1))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["history"],
        ["detail"],
        ["files"],
        ["files", "--version", "1"],
        ["log"],
        ["log", "--version", "1"],
        ["read"],
        ["read", "--version", "1"],
        ["read", "--version", "1", "--explain"],
        ["read", "--version", "1", "--filter", f"`a{STEERING}` = 'x'", "--explain"],
        ["delete", "--where", f"`b{STEERING}` = 'x'"],
        ["vacuum"],
        ["optimize"],
        ["restore", "9"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_the_command_line_shows_it_escaped(command, table, capsys):
    main([command[0], str(table), *command[1:]])
    out, err = capsys.readouterr()
    assert out + err
    assert steers(out + err) == []


def test_what_is_for_programs_is_as_it_is(table, capsys):
    assert main(["history", str(table), "--json"]) == 0
    newest, written, _ = json.loads(capsys.readouterr().out)
    assert written["operation"] == f"WRITE{STEERING}"
    assert newest["version"] == 2


def test_messages_of_errors_are_one_line_that_steers_nothing(table):
    with pytest.raises(DeltaError) as caught:
        DeltaTable(table).to_pyarrow_table()
    assert steers(str(caught.value)) == []
    assert "\n" not in str(caught.value)


# --- catalogs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["tables"], ["publish", "a"], ["drop", "a"], ["rename", "a", "b"], ["adopt", "a"]])
def test_names_and_errors_of_a_catalog_are_shown_escaped(words, monkeypatch, capsys):
    class Told:
        def tables(self, _namespace):
            return [f"sales.{STEERING}", "sales.\x1b[31morders"]

        def __getattr__(self, _name):
            raise StorageError(f"ERROR:  {STEERING}\nDETAIL: \x1b[2J")

    monkeypatch.setattr(catalogs, "_opened", lambda _options: Told())
    main(["catalog", *words])
    out, err = capsys.readouterr()
    assert out + err
    assert steers(out + err) == []


def test_an_error_of_a_store_is_one_line_that_steers_nothing():
    assert steers(str(StorageError(f"denied {STEERING}\nmore"))) == []
    assert "\n" not in str(StorageError("a\nb"))


def test_the_command_line_prints_text_in_one_place_alone():
    """Text that goes to a terminal by another way than ``say`` is not escaped."""
    folder = Path(refdelta.__file__).parent / "cli"
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print"):
                found.add(path.name)
    # program.py has click's own help, which is ours.
    assert found == {"render.py", "program.py"}


@pytest.mark.parametrize("name", ["say_painted"])
def test_lines_with_colours_are_few(name):
    """Their parts are escaped before they get colours: a drawing, a table, and the checks of the demo."""
    folder = Path(refdelta.__file__).parent / "cli"
    used = {path.name for path in folder.glob("*.py") if f"{name}(" in path.read_text()}
    assert used == {"render.py", "running.py", "seeing.py"}
