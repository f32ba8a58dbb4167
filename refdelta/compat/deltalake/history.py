"""The history in deltalake's forms: names of operations, parameters as strings, names of metrics.

Commits of other engines are shown as their commitInfo has them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from refdelta.core.log.vacuums import FULL, STARTS

_OPERATIONS = {"ADD COLUMNS": "ADD COLUMN"}
_SNAKE = frozenset({"WRITE", "DELETE", "UPDATE", "MERGE"})
"""Operations whose metrics deltalake writes with underscores."""

_WRITE = {
    "num_files": "num_added_files",
    "num_output_rows": "num_added_rows",
    "num_output_bytes": "num_added_bytes",
}


def in_their_form(commit: dict[str, Any]) -> dict[str, Any]:
    """A commit of the history, in deltalake's form if refdelta made it."""
    if not str(commit.get("engineInfo", "")).startswith("refdelta/"):
        return commit
    operation = commit.get("operation")
    found = {**commit, "operation": _OPERATIONS.get(str(operation), operation)}
    if isinstance(parameters := commit.get("operationParameters"), dict):
        found["operationParameters"] = _parameters(operation, parameters)
    if isinstance(metrics := commit.get("operationMetrics"), dict):
        found["operationMetrics"] = _metrics(operation, metrics)
    return found


def _parameters(operation: Any, given: dict[str, Any]) -> dict[str, str]:
    values = {name: value for name, value in given.items() if value is not None}
    match operation:
        case "DELETE" | "UPDATE" if "predicate" in values:
            values["predicate"] = _only(values["predicate"])
        case "MERGE" if "predicate" in values:
            values = {"mergePredicate": _only(values.pop("predicate")), **values}
        case "ADD CONSTRAINT" if "constraints" not in values:
            values = {"constraints": [values]}
        case "ADD COLUMNS":
            values = {"fields": [each["column"] for each in json.loads(values["columns"])]}
        case "VACUUM START" | "VACUUM END":
            values = {name: value for name, value in values.items() if name not in {FULL, STARTS}}
    return {name: value if isinstance(value, str) else _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _only(text: Any) -> str:
    """The predicate in a JSON list of one, as Spark writes it; an empty string for an empty list."""
    try:
        listed = json.loads(text)
    except (TypeError, ValueError):
        return str(text)
    return str(listed[0]) if listed and isinstance(listed, list) else ""


def _metrics(operation: Any, given: dict[str, Any]) -> dict[str, Any]:
    values = {name: int(value) if _is_number(value) else value for name, value in given.items()}
    if operation not in _SNAKE:
        return values
    found = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): value for name, value in values.items()}
    if operation == "WRITE":
        return {"num_removed_files": 0, **{_WRITE.get(name, name): value for name, value in found.items()}}
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdigit()
