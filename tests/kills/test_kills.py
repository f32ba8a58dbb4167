"""Processes that are killed while they work at a table on S3.

On local disk: tests/api/test_killed.py. Read by delta-spark: tests/oracle/test_kills.py. By hundreds: ``make search
NAME=kills``.
"""

from __future__ import annotations

import pytest

import tiers
from kills.campaign import Campaign


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("layout", ["vectors", "partitions"])
def test_kills_on_s3(s3_server, layout):
    place = s3_server.place()
    campaign = Campaign(place, s3_server.path(place.uri), layout, seed=tiers.seed(20261121), pause=0.15).run(9)
    campaign.finish()
    assert campaign.killed.total() == 9
