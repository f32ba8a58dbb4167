"""Reads by delta-spark of tables whose writers were killed, on local disk and on S3."""

from __future__ import annotations

import pytest

import tiers
from kills.campaign import Campaign
from kills.spark import same_as_delta_spark_reads
from servers.running import Place

pytestmark = pytest.mark.spark


@pytest.mark.tier("nightly")
def test_delta_spark_reads_what_the_killed_left(s3_server, quick_spark, fresh_path):
    path, place = fresh_path(), s3_server.place()
    local = Campaign(Place(str(path), {}), path, "vectors", seed=tiers.seed(20261122))
    remote = Campaign(place, s3_server.path(place.uri), "partitions", seed=tiers.seed(20261123), pause=0.15)
    for campaign in (local, remote):
        campaign.run(5).finish()
        same_as_delta_spark_reads(quick_spark, campaign)
