"""The statistics that other engines write, measured: ``measured_claims.json`` beside this file.

Every engine writes the same rows into one file of a table, and the text of its ``stats`` is kept beside them. Run the
parts in this order; the parts for Spark need pyspark and Java alone, so they run in environments with older versions::

    python measure_claims.py source FOLDER                      # the rows
    python measure_claims.py deltalake FOLDER                   # the version that is installed
    python measure_claims.py spark FOLDER io.delta:delta-spark_2.12:3.2.1
    python measure_claims.py kernel FOLDER io.delta:delta-kernel-defaults:4.0.1 io.delta:delta-spark_2.13:4.0.1
    python measure_claims.py collect FOLDER                     # everything into measured_claims.json
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

OUTCOME = Path(__file__).with_name("measured_claims.json")
ZONES = ("UTC", "Europe/Stockholm", "America/New_York")
STOCKHOLM_1850 = -3_786_825_600_000_000
"""1850-01-01T00:00:00Z in microseconds: at +01:12:12 in Stockholm, at -04:56:02 in New York."""


def columns() -> dict[str, tuple[str, list[Any]]]:
    """The columns: a type, and values. Decimals are text, times microseconds, floats Python's text of them."""
    cases: dict[str, tuple[str, list[Any]]] = {}
    for precision, scale in ((5, 2), (15, 2), (16, 2), (18, 2), (38, 18), (38, 0), (38, 38)):
        most = 10**precision - 1
        for name, unscaled in (
            ("most", [most, -most]),
            ("odd", [most // 7, -most // 7 - 1]),
            ("long", [1234567890123456789012345678901234567 % (most + 1), most // 3]),
        ):
            cases[f"decimal_{precision}_{scale}_{name}"] = (
                f"decimal({precision},{scale})",
                [_decimal(v, scale) for v in unscaled],
            )
    for kind in ("float", "double"):
        cases[f"{kind}_nan"] = (kind, ["1.0", "nan", "2.0"])
        cases[f"{kind}_only_nan"] = (kind, ["nan", "nan"])
        cases[f"{kind}_nan_null"] = (kind, ["nan", None, "-1.5"])
        cases[f"{kind}_infinite"] = (kind, ["inf", "-inf", "0.0"])
        cases[f"{kind}_zeros"] = (kind, ["-0.0", "0.0"])
        cases[f"{kind}_negative_zero"] = (kind, ["-0.0", "-0.0"])
        cases[f"{kind}_tenths"] = (kind, ["0.1", "0.3"])
    for name, micros in (
        ("1850", [STOCKHOLM_1850, STOCKHOLM_1850 + 1_500_000]),
        ("1850_end", [STOCKHOLM_1850 - 1, STOCKHOLM_1850 - 1]),
        ("micros", [1_684_886_485_010_301, 1_684_886_485_014_302]),
        ("before_1970", [-1_500, -1]),
    ):
        cases[f"time_{name}"] = ("timestamp", micros)
    cases["ntz_micros"] = ("timestamp_ntz", [1_684_886_485_010_301, 1_684_886_485_014_302])
    for size in (8, 31, 32, 33, 63, 64, 65, 100):
        cases[f"text_{size}"] = ("string", ["b" * size, "b" * size])
    cases["text_wide"] = ("string", ["\u00e4" * 40, "\u4e2d" * 40])
    cases["text_emoji"] = ("string", ["\U0001f680" * 20, "\U0001f680" * 40])
    cases["text_greatest"] = ("string", ["\U0010ffff" * 40, "\U0010ffff" * 80])
    cases["text_tilde"] = ("string", ["b" * 32 + "\x7f" * 40, "b" * 32 + "\x7e" * 40])
    cases["text_empty"] = ("string", ["", None])
    cases["binary"] = ("binary", ["61", "ff" * 40])
    cases["nothing"] = ("integer", [None, None])
    cases["whole"] = ("long", [2**63 - 1, -(2**63)])
    cases["day"] = ("date", [-141_428, 2_932_896])
    return cases


def _decimal(unscaled: int, scale: int) -> str:
    digits = f"{abs(unscaled):0{scale + 1}d}"
    text = digits[: len(digits) - scale] + ("." + digits[len(digits) - scale :] if scale else "")
    return "-" + text if unscaled < 0 else text


ROWS = 3
REBASES = [f"{kind}RebaseModeIn{way}" for kind in ("datetime", "int96") for way in ("Read", "Write")]


def padded(values: list[Any]) -> list[Any]:
    """The values of a column in the table: the last one is repeated."""
    return [*values, *[values[-1]] * (ROWS - len(values))]


def source(folder: Path) -> None:
    """Write the rows as Parquet: as columns, and those of a struct."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: _array(kind, padded(values)) for name, (kind, values) in columns().items()}
    inner = {name: arrays[name] for name in ("decimal_38_18_odd", "double_nan", "time_1850", "text_33")}
    arrays["inside"] = pa.StructArray.from_arrays(list(inner.values()), list(inner))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays), folder / "source.parquet", coerce_timestamps="us", store_schema=False)


def _array(kind: str, values: list[Any]) -> Any:
    from decimal import Decimal

    import pyarrow as pa

    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        return pa.array([Decimal(v) for v in values], pa.decimal128(precision, scale))
    if kind in ("float", "double"):
        return pa.array(
            [None if v is None else float(v) for v in values], {"float": pa.float32(), "double": pa.float64()}[kind]
        )
    if kind.startswith("timestamp"):
        return pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC" if kind == "timestamp" else None))
    if kind == "binary":
        return pa.array([bytes.fromhex(v) for v in values])
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, {"string": pa.string(), "integer": pa.int32(), "long": pa.int64()}[kind])


def keep(folder: Path, engine: str, version: str, how: str, stats: str | None) -> None:
    """Keep the statistics of one file."""
    found = {"engine": engine, "version": version, "how": how, "stats": stats}
    name = f"{engine} {version} {how}".replace("/", "_").replace(" ", "_")
    (folder / f"{name}.json").write_text(json.dumps(found))
    print(name, len(stats or ""))


def last_stats(table: str) -> str | None:
    """The statistics of the add in the last commit."""
    commit = max(Path(table, "_delta_log").glob("*.json"))
    adds = [json.loads(line)["add"] for line in commit.read_text().splitlines() if line.startswith('{"add"')]
    (add,) = adds
    return add.get("stats")


EVERY_COLUMN = {"delta.dataSkippingNumIndexedCols": "-1"}


def of_deltalake(folder: Path) -> str | None:
    """The statistics that deltalake writes."""
    import deltalake as library
    import pyarrow.parquet as pq

    table = tempfile.mkdtemp() + "/t"
    library.write_deltalake(table, pq.read_table(folder / "source.parquet"), configuration=EVERY_COLUMN)
    return last_stats(table)


def deltalake(folder: Path) -> None:
    """The version of deltalake that is installed."""
    import deltalake as library

    keep(folder, "deltalake", library.__version__, "append", of_deltalake(folder))


def session(zone: str, *packages: str) -> Any:
    """A small Spark session with packages of Maven."""
    from pyspark.sql import SparkSession

    home = os.environ.get("MEASURE_IVY", tempfile.gettempdir() + "/measure-ivy")
    settings = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars.packages": ",".join(packages),
        "spark.jars.ivy": home,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": zone,
        "spark.sql.shuffle.partitions": "1",
        **{
            f"spark.sql.parquet.{kind}RebaseModeIn{way}": "CORRECTED"
            for kind in ("datetime", "int96")
            for way in ("Read", "Write")
        },
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def of_spark(running: Any, folder: Path, zone: str) -> tuple[str | None, str | None]:
    """The statistics that delta-spark writes in a time zone: of an append, and of a deletion vector for the file."""
    settings = {"spark.sql.session.timeZone": zone} | {f"spark.sql.parquet.{name}": "CORRECTED" for name in REBASES}
    before = {name: running.conf.get(name) for name in settings}
    for name, value in settings.items():
        running.conf.set(name, value)
    try:
        table = tempfile.mkdtemp() + "/t"
        rows = running.read.parquet(str(folder / "source.parquet")).coalesce(1)
        rows.write.format("delta").options(**EVERY_COLUMN, **{"delta.enableDeletionVectors": "true"}).save(table)
        appended = last_stats(table)
        running.sql(f"DELETE FROM delta.`{table}` WHERE double_nan = 2.0")
        return appended, last_stats(table)
    finally:
        for name, value in before.items():
            running.conf.set(name, value)


def spark(folder: Path, package: str) -> None:
    """A version of delta-spark: an append in each zone, and a deletion vector that is written onto the file."""
    version = package.rsplit(":", maxsplit=1)[-1]
    running = session("UTC", package)
    for zone in ZONES:
        appended, deleted = of_spark(running, folder, zone)
        keep(folder, "delta-spark", version, f"append in {zone}", appended)
        keep(folder, "delta-spark", version, f"deletion vector in {zone}", deleted)
    for marked in sorted(folder.glob("marked*")):
        copy = tempfile.mkdtemp() + "/t"
        shutil.copytree(marked, copy)
        before = running.read.format("delta").load(copy).count()
        running.sql(f"DELETE FROM delta.`{copy}` WHERE k = 1")
        keep(folder, "delta-spark", version, f"deletion vector on {marked.name} ({before} rows)", last_stats(copy))
        shown = running.read.format("delta").load(copy).where("x > 2.5").collect()
        assert len(shown) == 1, shown
    running.stop()


def kernel(folder: Path, package: str, *more: str) -> None:
    """A version of Delta Kernel: its Parquet writer, which computes statistics."""
    running = session("UTC", package, *more)
    jvm = running._jvm
    configuration = running._jsc.hadoopConfiguration()
    engine = jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(configuration)
    path = str(folder / "source.parquet")
    status = jvm.io.delta.kernel.utils.FileStatus.of(path, Path(path).stat().st_size, 0)
    # The schema as Kernel knows it comes from a table that delta-spark has made of the rows.
    table = tempfile.mkdtemp() + "/t"
    running.read.parquet(path).coalesce(1).write.format("delta").save(table)
    snapshot = jvm.io.delta.kernel.Table.forPath(engine, table).getLatestSnapshot(engine)
    try:
        schema = snapshot.getSchema()
    except Exception:
        schema = snapshot.getSchema(engine)
    utils = jvm.io.delta.kernel.internal.util.Utils
    read = engine.getParquetHandler().readParquetFiles(
        utils.singletonCloseableIterator(status), schema, jvm.java.util.Optional.empty()
    )
    assert read.hasNext()
    batch = read.next()
    batch = batch.getData() if hasattr(batch, "getData") and "Result" in batch.getClass().getName() else batch
    filtered = jvm.io.delta.kernel.data.FilteredColumnarBatch(batch, jvm.java.util.Optional.empty())
    wanted = jvm.java.util.ArrayList()
    for name in columns():
        wanted.add(jvm.io.delta.kernel.expressions.Column(name))
    for inner in ("decimal_38_18_odd", "double_nan", "time_1850", "text_33"):
        names = running.sparkContext._gateway.new_array(jvm.java.lang.String, 2)
        names[0], names[1] = "inside", inner
        wanted.add(jvm.io.delta.kernel.expressions.Column(names))
    target = tempfile.mkdtemp()
    written = engine.getParquetHandler().writeParquetFiles(target, utils.singletonCloseableIterator(filtered), wanted)
    assert written.hasNext()
    found = written.next().getStatistics().get()
    try:
        text = found.serializeAsJson(schema)
    except Exception:
        text = found.serializeAsJson()
    keep(folder, "Delta Kernel", package.rsplit(":", maxsplit=1)[-1], "append", text)
    running.stop()


def collect(folder: Path) -> None:
    """Put all of it into :data:`OUTCOME`: each text of statistics once, and the writers that left it."""
    found: dict[str, list[dict[str, str]]] = {}
    for path in sorted(folder.glob("*.json")):
        one = json.loads(path.read_text())
        found.setdefault(one.pop("stats"), []).append(one)
    texts = [{"writers": writers, "stats": stats} for stats, writers in found.items()]
    OUTCOME.write_text(json.dumps(texts, indent=1, ensure_ascii=True) + "\n")


def measured() -> list[dict[str, str]]:
    """The content of :data:`OUTCOME`: engine, version, how, and stats of each measurement."""
    return [{**one, "stats": text["stats"]} for text in json.loads(OUTCOME.read_text()) for one in text["writers"]]


if __name__ == "__main__":
    command, place, *arguments = sys.argv[1:]
    {"source": source, "deltalake": deltalake, "spark": spark, "kernel": kernel, "collect": collect}[command](
        Path(place), *arguments
    )
