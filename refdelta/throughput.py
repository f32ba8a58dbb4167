"""The former name of :mod:`refdelta.racing`."""

from __future__ import annotations

import warnings
from typing import Any

from refdelta.racing import throughput


def __getattr__(name: str) -> Any:
    found = getattr(throughput, name)
    warnings.warn(
        "refdelta.throughput is deprecated, and goes in 0.4: use refdelta.racing instead",
        DeprecationWarning,
        stacklevel=2,
    )
    return found
