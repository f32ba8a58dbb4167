"""delta-spark in races: SQL from threads of one Java process, on tables with deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from refdelta.crosscheck import oracle
from refdelta.errors import InvalidArgumentError
from refdelta.racing.engines.other_forms import of_one_process
from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged


class DeltaSparkHands(RivalHands):
    """The statements in SQL."""

    def __init__(self, session: Any, folder: str, mix: Mix) -> None:
        from delta import exceptions

        super().__init__(mix)
        self._session, self._name = session, f"delta.`{folder}`"
        # They have no base of their own in common.
        self.aborts = tuple(kind for name, kind in vars(exceptions).items() if "Concurrent" in name)

    def append(self, rows: pa.Table) -> None:
        """Small ones in the text of the statement, as people write them."""
        if rows.num_rows > 1_000:
            self._session.createDataFrame(rows).createOrReplaceTempView("bench_rows")
            self._session.sql(f"INSERT INTO {self._name} SELECT id, n FROM bench_rows")
        else:
            self._session.sql(f"INSERT INTO {self._name} VALUES {_values(rows)}")

    def delete(self, predicate: str) -> None:
        """See :meth:`RivalHands.delete`."""
        self._session.sql(f"DELETE FROM {self._name} WHERE {predicate}")

    def update(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.update`."""
        self._session.sql(f"UPDATE {self._name} SET n = {wanted.value} WHERE {wanted.predicate}")

    def merge(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.merge`."""
        self._session.sql(
            f"MERGE INTO {self._name} t "
            f"USING (SELECT * FROM VALUES {_values(wanted.rows)} AS v(id, n)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT *"
        )

    def read(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.read`."""
        self._session.sql(f"SELECT * FROM {self._name} WHERE {wanted.predicate}").collect()

    def compact(self) -> Acknowledged | None:
        """See :meth:`RivalHands.compact`."""
        (told,) = self._session.sql(f"OPTIMIZE {self._name}").collect()
        return Acknowledged(None) if told["metrics"]["numFilesAdded"] else None


def _values(rows: pa.Table) -> str:
    return ", ".join(f"({row['id']}, {row['n']})" for row in rows.to_pylist())


class DeltaSparkEngine(RivalEngine):
    """delta-spark in one Java process, on a local folder: its writers are threads.

    Attributes:
        session: the session of all threads; one is started, and ends with the process, where none is set.
    """

    name = "delta-spark"
    packages = ("delta-spark", "pyspark")
    module = "delta"
    session: ClassVar[Any] = None

    @property
    def _spark(self) -> Any:
        cls = type(self)
        if cls.session is None:
            cls.session = oracle.start_session()
        return cls.session

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        if storage_options or "://" in folder:
            raise InvalidArgumentError("the engine delta-spark races in a local folder")
        self._spark.sql(
            f"CREATE TABLE delta.`{folder}` (id BIGINT, n BIGINT) USING delta "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        for piece in first_pieces(mix):
            self._spark.createDataFrame(piece).coalesce(1).write.format("delta").mode("append").save(folder)

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> DeltaSparkHands:
        """See :meth:`RivalEngine.open`."""
        of_one_process(self.name)
        return DeltaSparkHands(self._spark, folder, mix)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        found: pa.Table = self._spark.read.format("delta").load(folder).toArrow()
        return found
