"""The engines that ``refdelta bench --engine`` knows by name.

Each module is of one library and is imported with it; what it gives is a :class:`refdelta.racing.BenchEngine`. Another
package adds its own by an entry point of the group ``refdelta.bench_engines``.
"""

from __future__ import annotations

from collections.abc import Mapping

from refdelta.errors import InvalidArgumentError

ENGINES: Mapping[str, str] = {
    "refdelta": "refdelta.racing.throughput:OwnEngine",
    "refdelta-files": "refdelta.racing.engines.other_forms:FilesEngine",
    "refdelta-catalog": "refdelta.racing.engines.other_forms:CatalogEngine",
    "refdelta-group": "refdelta.racing.engines.other_forms:GroupEngine",
    "refdelta-intents": "refdelta.racing.engines.other_forms:IntentsEngine",
    "deltalake": "refdelta.racing.engines.of_deltalake:DeltalakeEngine",
    "delta-spark": "refdelta.racing.engines.of_delta_spark:DeltaSparkEngine",
    "pyiceberg": "refdelta.racing.engines.of_pyiceberg:PyIcebergEngine",
    "lance": "refdelta.racing.engines.of_lance:LanceEngine",
    "ducklake": "refdelta.racing.engines.of_ducklake:DuckLakeEngine",
}
"""By name, the class, as ``module:object``."""


def is_tuned(settings: str) -> bool:
    """Whether an engine is to have what its own documentation offers to many writers.

    Raises:
        InvalidArgumentError: the word is another one.
    """
    if settings not in ("defaults", "tuned"):
        raise InvalidArgumentError(f"settings are 'defaults' or 'tuned', not {settings!r:.60}")
    return settings == "tuned"
