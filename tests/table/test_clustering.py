"""The metadata domain of clustered tables."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import DomainMetadata
from refdelta.errors import InvalidLogError
from refdelta.table.clustering import DOMAIN, clustering_columns, clustering_domain
from refdelta.table.types import INTEGER, STRING, StructField, StructType, leaves

MAPPED = {"delta.columnMapping.physicalName": "col-1"}
SCHEMA = StructType(
    (
        StructField("Id", INTEGER, True),
        StructField("seen", INTEGER, True, MAPPED),
        StructField("s", StructType((StructField("y.z", STRING, True), StructField("über", STRING, True)))),
    )
)
PATHS = [path for path, _ in leaves(SCHEMA)]


def of(configuration: str):
    return {DOMAIN: DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)}


def test_the_domain_is_what_delta_spark_writes():
    action = clustering_domain([("Id",), ("seen",), ("s", "y.z")], SCHEMA)
    assert (action.domain, action.removed) == ("delta.clustering", False)
    assert (
        action.configuration == '{"clusteringColumns":[["Id"],["col-1"],["s","y.z"]],"domainName":"delta.clustering"}'
    )


@given(st.lists(st.sampled_from(PATHS), unique=True))
def test_what_is_written_is_read(columns):
    assert clustering_columns({DOMAIN: clustering_domain(columns, SCHEMA)}, SCHEMA) == tuple(columns)


def test_other_spellings_are_read():
    """The specification's example has plain names; names are those of the schema in any case, and by physical name."""
    assert clustering_columns(of('{"clusteringColumns":["id","col-1"]}'), SCHEMA) == (("Id",), ("seen",))
    assert clustering_columns({}, SCHEMA) == ()


@pytest.mark.parametrize(
    "configuration",
    [
        "",
        "[]",
        "{}",
        '{"clusteringColumns":"a"}',
        '{"clusteringColumns":[[]]}',
        '{"clusteringColumns":[[1]]}',
        "[[[[",
    ],
)
def test_a_bad_domain_is_refused(configuration):
    with pytest.raises(InvalidLogError, match=r"clusteringColumns|delta\.clustering"):
        clustering_columns(of(configuration), SCHEMA)


@pytest.mark.parametrize("path", [["seen"], ["gone"], ["Id", "x"], ["s", "gone"]])
def test_columns_that_the_schema_lacks_are_passed_over(path):
    configuration = json.dumps({"clusteringColumns": [path, ["Id"]]})
    assert clustering_columns(of(configuration), SCHEMA) == (("Id",),)
