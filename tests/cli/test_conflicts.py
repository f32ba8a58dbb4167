"""``refdelta conflicts``: the matrices as the rules answer, and one pair explained."""

import pytest

from refdelta.core.conflicts.matrix import DOCUMENTED, matrix


def test_both_matrices_with_what_is_documented_and_what_the_rules_say(cli):
    result = cli("conflicts")
    assert (result.status, result.err) == (0, "")
    with_it, without = result.out.split("\nwithout row-level concurrency\n")
    for text, row_level in ((with_it, True), (without, False)):
        lines = text.splitlines()
        for cell in matrix(row_level=row_level):
            said = [f"{cell.one} {cell.other} {cell.documented} {cell.verdicts['WriteSerializable']}".split()]
            found = [line.split() for line in lines]
            assert any(line[: len(said[0])] == said[0] for line in found), said


def test_where_deletion_vectors_and_zorder_make_a_difference_the_cell_says_so(cli):
    with_it, without = cli("conflicts").out.split("\nwithout row-level concurrency\n")
    twice = 2 * 2  # two cells, two levels
    assert with_it.count("  never (ZORDER BY: can)") == with_it.count("(") - 1 == twice
    assert without.count("  can (deletion vectors: never, ZORDER BY: can)") == without.count("(") == twice


def test_one_matrix_only(cli):
    assert "without row-level" not in cli("conflicts", "--row-level").out
    assert cli("conflicts", "--no-row-level").out.startswith("without row-level concurrency\n")


def test_the_matrices_as_json(cli):
    found = cli("conflicts", "--json").json
    kinds = [(True, True), (False, True), (False, False)]
    assert [(one["row_level"], one["deletion_vectors"]) for one in found] == kinds
    for one in found:
        cells = {(cell["one"], cell["other"]): cell["documented"] for cell in one["cells"]}
        assert cells == DOCUMENTED[one["row_level"]]
    assert len(cli("conflicts", "--json", "--row-level").json) == 1
    assert len(cli("conflicts", "--json", "--no-row-level").json) == 2
    optimize = [cell["verdicts"]["Serializable"] for cell in (one["cells"][-1] for one in found)]
    assert optimize == ["never", "never", "can"]


@pytest.mark.parametrize(("row_level", "rule"), [(True, "read-file-removed"), (False, "files-added")])
def test_one_pair_explained(cli, row_level, rule):
    option = "--row-level" if row_level else "--no-row-level"
    arguments = ("conflicts", "--explain", "UPDATE", "DELETE", "--isolation", "Serializable", option)
    text = cli(*arguments).out
    assert text.startswith("UPDATE, after DELETE committed first, at Serializable: can\n")
    assert f"rule {rule} raises Concurrent" in text
    assert "Repeat the operation" in text
    found = cli(*arguments, "--json").json
    assert (found["verdict"], found["rules"]) == ("can", [rule])
    assert found["documented"] == ("only when both modify the same row" if row_level else "can, at either level")
    assert f"the documentation: {found['documented']}\n" in text


@pytest.mark.parametrize(("option", "verdict"), [("--deletion-vectors", "never"), ("--no-deletion-vectors", "can")])
def test_deletion_vectors_matter_where_files_decide(cli, option, verdict):
    text = cli("conflicts", "--explain", "DELETE", "OPTIMIZE", "--no-row-level", option).out
    assert text.startswith(f"DELETE, after OPTIMIZE committed first, at WriteSerializable: {verdict}\n")
    zorder = cli("conflicts", "--explain", "DELETE", "ZORDER", option, "--json").json
    assert zorder["verdict"] == "can"


def test_the_level_matters_and_any_spelling_does(cli):
    found = [
        cli("conflicts", "--explain", "delete", "insert", "--isolation", level, "--json").json["verdict"]
        for level in ("writeserializable", "SERIALIZABLE")
    ]
    assert found == ["never", "can"]
    assert cli("conflicts", "--explain", "insert_from_query", "set_properties").out.endswith(
        "repeat the operation.\n"
    ), "no word of the documentation on this pair"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--explain", "UPDATE", "DANCE"), "'DANCE' does not exist; operations: INSERT, UPDATE"),
        (("--explain", "UPDATE"), "--explain"),
        (("--explain", "UPDATE", "DELETE", "--isolation", "Snapshot"), "Snapshot"),
        (("--isolation", "Serializable"), "--explain"),
        (("--deletion-vectors",), "--explain"),
        (("--explain", "UPDATE", "DELETE", "--row-level", "--no-deletion-vectors"), "with deletion vectors only"),
    ],
)
def test_what_is_wrong_is_one_line(fails, arguments, said):
    assert said in fails("conflicts", *arguments)
