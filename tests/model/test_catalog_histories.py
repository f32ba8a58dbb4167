"""All histories of two operations on a catalog-managed table, staged and inline: held to the judge, and compared with
those of a table of the file system.
"""

import pytest

import tiers
from catalog.contract import leave_unpublished
from model import tables
from model.cases import MORE
from model.exhaustive import explore
from model.layouts import PARTITIONED, PLAIN, ROWS
from model.on_catalog import OnCatalog
from refdelta.conformance.judge import SERIALIZABLE, WRITE_SERIALIZABLE


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("layout", [PLAIN, PARTITIONED, ROWS], ids=str)
@pytest.mark.parametrize("level", [SERIALIZABLE, WRITE_SERIALIZABLE])
@pytest.mark.parametrize("inline", [False, True], ids=["staged", "inline"])
def test_pairs_through_the_engine(level, layout, inline, say, monkeypatch):
    # Which versions are published is a matter of the table here.
    leave_unpublished(monkeypatch)
    cases = tiers.some(MORE, check=6, test=12)
    tally = explore(OnCatalog(level, layout, inline=inline), cases, 2)
    say(f"2 of {len(cases)} operations: {tally}")
    assert 0 < tally["in which all commit"] < tally["histories"]
    assert tally == explore(tables.engine(level, layout), cases, 2)
