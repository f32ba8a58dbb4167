"""What delta-spark says of the tables that killed writers left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kills.steps import SCHEMA, content, open_table
from refdelta.crosscheck import oracle

if TYPE_CHECKING:
    from kills.campaign import Campaign


def same_as_delta_spark_reads(spark: Any, campaign: Campaign) -> None:
    """Raise where delta-spark reads other rows, sees another history, or finds a checksum wrong."""
    table = open_table(campaign.place)
    found = oracle.read_table(spark, campaign.folder).select(SCHEMA.names).to_pydict()
    ours = [(owner, key, value) for owner, state in content(table).items() for key, value in state.items()]
    assert sorted(zip(*found.values(), strict=True)) == sorted(ours), campaign.folder
    history = oracle.history(spark, campaign.folder)
    assert {row["version"]: row["userMetadata"] for row in history}.items() <= campaign.log.items()
    assert history[0]["version"] == table.version()
    oracle.validate_checksum(spark, campaign.folder)
