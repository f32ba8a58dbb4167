"""delta-spark opens a copy of a catalog-managed table, in which every commit is a file of the log.

delta-spark asks the commit coordinator of its catalog which commits of such a table are not published. There is none
for a copy, so a coordinator in Python answers, over Py4J.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_CATALOG = "spark_catalog"  # the only name that delta-spark asks
_REGISTERED = "_refdelta_coordinators"


class Published:
    """The commit coordinator of tables all of whose commits are published. Nothing can be committed through it."""

    def __init__(self, spark: Any):
        self._jvm = spark._jvm  # noqa: SLF001

    # The names and arguments are those of io.delta.storage.commit.CommitCoordinatorClient.

    def registerTable(self, *_: Any) -> Any:  # noqa: N802
        """Nothing is needed to register a table."""
        return self._jvm.java.util.HashMap()

    def getCommits(self, _table: Any, _first: Any, _last: Any) -> Any:  # noqa: N802
        """The ratified commits that are not published: none."""
        return self._jvm.io.delta.storage.commit.GetCommitsResponse(self._jvm.java.util.ArrayList(), -1)

    def commit(self, *_: Any) -> Any:
        """Refuse."""
        raise NotImplementedError("a copy is only read")

    def backfillToVersion(self, *_: Any) -> None:  # noqa: N802
        """Everything is published."""

    def semanticEquals(self, _other: Any) -> bool:  # noqa: N802
        """There is one coordinator of a session."""
        return True

    class Java:
        """The interface, for Py4J."""

        implements = ("io.delta.storage.commit.CommitCoordinatorClient",)


class _Builder:
    def __init__(self) -> None:
        self.client: Any = None

    def getName(self) -> str:  # noqa: N802
        return "refdelta"

    def build(self, _spark: Any, _conf: Any) -> Any:
        return self.client

    def buildForCatalog(self, _spark: Any, _name: str) -> Any:  # noqa: N802
        return self.client

    class Java:
        implements = ("org.apache.spark.sql.delta.coordinatedcommits.CatalogOwnedCommitCoordinatorBuilder",)


def coordinate(spark: Any, client: Any) -> None:
    """Let delta-spark ask this coordinator from now on, which has the methods of :class:`Published`."""
    builder = getattr(spark, _REGISTERED, None)
    if builder is None:
        from pyspark.java_gateway import ensure_callback_server_started

        gateway = spark.sparkContext._gateway  # noqa: SLF001
        gateway.python_parameters.propagate_java_exceptions = True
        ensure_callback_server_started(gateway)
        builder = _Builder()
        owned = spark._jvm.org.apache.spark.sql.delta.coordinatedcommits  # noqa: SLF001
        owned.CatalogOwnedCommitCoordinatorProvider.registerBuilder(_CATALOG, builder)
        setattr(spark, _REGISTERED, builder)  # Java accepts one builder of a name
    builder.client = client


@contextmanager
def by_path(spark: Any) -> Iterator[None]:
    """Let delta-spark create and open catalog-managed tables by their path, as its own tests do."""
    system = spark._jvm.java.lang.System  # noqa: SLF001
    system.setProperty("spark.testing", "true")
    try:
        yield
    finally:
        system.clearProperty("spark.testing")
