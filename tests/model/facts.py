"""What a log says of a table apart from its rows, read line by line as JSON; and when its versions were committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from model.calls import CLUSTERING, COLUMN, DOMAIN, DOMAINS, FEATURE, PROPERTY, PROTECTION, RULE, TIMES
from model.entries import Wrong
from refdelta.conformance.judge import State

Fact = tuple[str, ...]

_ENABLEMENT = "delta.inCommitTimestampEnablement"


def facts_of(state: State) -> list[Fact]:
    """The facts about a table in the judge's world, in order."""
    kinds = (DOMAIN, COLUMN, RULE, FEATURE, PROPERTY)
    return sorted(row.values for row in state if row.values[0] in kinds)


def facts_in(log: Sequence[bytes]) -> list[Fact]:
    """The same facts, as the commits of a log say them."""
    domains: dict[str, str] = {}
    first_names: dict[str, str] = {}
    found: dict[str, Any] = {}
    for data in log:
        for action in map(json.loads, data.splitlines()):
            found |= {name: action[name] for name in ("metaData", "protocol") if name in action}
            if "metaData" in action:
                for field in _fields(action["metaData"]):
                    first_names.setdefault(_physical(field), field["name"])
            if "domainMetadata" in action:
                domain = action["domainMetadata"]
                domains[domain["domain"]] = domain["configuration"]
                if domain["removed"]:
                    del domains[domain["domain"]]
    facts: list[Fact] = [(DOMAIN, name, value) for name, value in domains.items() if not name.startswith("delta.")]
    if "delta.clustering" in domains:
        paths = json.loads(domains["delta.clustering"])["clusteringColumns"]
        facts.append((DOMAIN, CLUSTERING, ",".join(first_names[physical] for (physical,) in paths)))
    for field in _fields(found["metaData"]):
        if field["name"] not in ("k", "a"):
            facts.append((COLUMN, field["name"], field["type"]))
        elif not field["nullable"]:
            facts.append((RULE, "given"))
    configuration = found["metaData"].get("configuration", {})
    facts += [(RULE, key.rpartition(".")[2]) for key in configuration if key.startswith("delta.constraints.")]
    if configuration.get("delta.enableInCommitTimestamps") == "true":
        facts.append((PROPERTY, TIMES))
    features = found["protocol"].get("writerFeatures", ())
    return sorted([*facts, *((FEATURE, name) for name in (DOMAINS, PROTECTION) if name in features)])


def _fields(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return json.loads(metadata["schemaString"])["fields"]


def _physical(field: dict[str, Any]) -> str:
    return field["metadata"].get("delta.columnMapping.physicalName", field["name"])


def check_times(log: Sequence[bytes], time_of_file: Callable[[int], int]) -> None:
    """Raise ``Wrong`` where a version is not later than the one before it, or where the first version with an
    in-commit timestamp does not say that it is the first.

    Args:
        log: the content of the commit files.
        time_of_file: when the commit file of a version was made, in milliseconds since 1970.
    """
    before, stamp_before = -1, None
    for version, data in enumerate(log):
        actions = [json.loads(line) for line in data.splitlines()]
        stamp = actions[0]["commitInfo"].get("inCommitTimestamp")
        time = time_of_file(version) if stamp is None else stamp
        if time <= before:
            raise Wrong(f"version {version} was committed at {time}, the one before it at {before}")
        if stamp is not None and stamp_before is None:
            (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
            said = [metadata["configuration"].get(f"{_ENABLEMENT}{what}") for what in ("Version", "Timestamp")]
            if said != [str(version), str(stamp)]:
                raise Wrong(f"version {version} of the time {stamp} says that the times begin with {said}")
        before, stamp_before = time, stamp
