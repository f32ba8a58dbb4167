"""The table of features is that of the registry, and each feature that is written names tests that exist."""

import pytest

from by_path import generator
from refdelta.table.features import REGISTRY, Feature

features_table = generator("features_table")

TESTS = features_table.tests_of(features_table.TESTS.read_text())


def test_the_document_is_that_of_the_registry():
    assert features_table.TABLE.read_text() == features_table.table(REGISTRY, TESTS), "say make generate NAME=features"


@pytest.mark.tier("test")
def test_each_feature_that_is_written_has_tests_that_exist():
    assert list(features_table.problems(REGISTRY, TESTS)) == []


def test_what_is_wrong_is_named():
    registry = {"a": Feature("a", "writer", write="always"), "b": Feature("b", "reader_writer", write="always")}
    here = "tests/packaging/test_features_table.py::test_what_is_wrong_is_named"
    assert list(features_table.problems(registry, {"a": {"delta-spark": [here]}, "b": {"deltalake": [here]}})) == []
    wrong = {"a": {"delta-spark": [here, "tests/gone.py::test_it"]}, "c": {}}
    assert list(features_table.problems(registry, wrong)) == [
        "a: tests/gone.py::test_it does not exist",
        "there is no feature c",
        "b is written, but no test is named",
    ]


def test_a_row_says_what_the_registry_says():
    row = Feature("b", "reader_writer", read=False, write="never", drop="history", hint="too new")
    text = features_table.table({"b": row}, {"b": {"delta-spark": ["x::y"]}})
    assert "| `b` | 3, 7 | readers and writers | no | no: too new |  | delta-spark: `x::y` |" in text.splitlines()
    assert "| history |" in features_table.table({"v": REGISTRY["deletionVectors"]}, {})
