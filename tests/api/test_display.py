"""The looks of a table and its results at a prompt and in a notebook.

Tests of transaction.results, wording.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.wording import LINE, one_line


@pytest.fixture
def table(tmp_path):
    rows = pa.table({"id": [1, 2, 3], "<b>": ["a", "b", "c"]})
    write_deltalake(tmp_path / "t", rows, partition_by=["<b>"], configuration={"delta.columnMapping.mode": "name"})
    return DeltaTable(tmp_path / "t")


@pytest.mark.parametrize(
    "statement",
    [
        lambda table: table.delete("id = 2"),
        lambda table: table.update({"id": "id + 1"}),
        lambda table: table.merge(pa.table({"id": [1]}), "t.id = s.id").when_matched_delete().execute(),
        lambda table: table.optimize.compact(),
        lambda table: table.restore(0),
    ],
)
def test_the_result_of_a_statement_fits_a_line_and_leaves_zeros_out(table, statement):
    result = statement(table)
    shown = repr(result)
    assert shown.startswith(f"CommitResult(version={result.version}")
    assert len(shown) <= LINE
    assert "=0," not in shown
    for name, value in result.items():
        assert (f"<td>{name}</td>" in result._repr_html_()) == bool(
            value and name != "version" and not name.endswith("attempts")
        )


@pytest.mark.parametrize("count", [0, 1, 5, 200])
@pytest.mark.parametrize("length", [1, 40, 500])
def test_as_many_facts_as_fit_and_the_number_of_the_others(count, length):
    facts = {f"name_{number}": "x" * length for number in range(count)}
    shown = one_line("Some", facts)
    told = shown.count("name_")
    assert len(shown) <= LINE
    assert (f"... {count - told} more" in shown) == (told < count)


def test_a_table_shows_its_columns_and_no_markup_of_others(table):
    shown = table._repr_html_()
    assert "<td>id</td><td>int64</td><td></td><td></td>" in shown
    assert "<td>&lt;b&gt;</td><td>string</td><td></td><td>partition</td>" in shown
    assert "version 0: 3 files of" in shown
    assert "<b>" not in shown


def test_a_history_has_a_line_for_each_version(table):
    table.delete("id = 2")
    shown = table.history()._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>DELETE</td>" in shown
    assert " UTC</td>" in shown
