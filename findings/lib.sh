# Sourced by the findings, after `set -euo pipefail`. Everything happens in a temporary folder, which is removed at the
# end. Exit codes: 1 if the behaviour has changed, 2 if the finding could not be run.

finding=$(basename "$0" .sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# not_run TEXT: end, with the reason.
not_run() {
    echo "$finding: not run: $1" >&2
    exit 2
}

# java_17: end if Spark would find no Java that it runs on.
java_17() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || true
    [[ ${version:-0} -ge 17 ]] || not_run 'Java 17 or later is needed'
}

# install_spark [PACKAGE==VERSION...]: delta-spark, further packages, and for the program a module `session`, in which
# `spark` is a session of Spark. Spark fetches the JARs from Maven Central, but for those that it has itself.
install_spark() {
    java_17
    install delta-spark==4.4.0 pyspark==4.2.0 "$@"
    cat >"$folder/session.py" <<'END'
import tempfile

from pyspark.sql import SparkSession

of_spark = ("org.apache.hadoop", "org.apache.parquet", "com.fasterxml.jackson.core", "com.fasterxml.jackson.datatype")
settings = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.jars.excludes": ",".join(f"{group}:*" for group in (*of_spark, "org.apache.logging.log4j", "org.slf4j")),
    "spark.jars.ivy": tempfile.mkdtemp(),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.warehouse.dir": tempfile.mkdtemp(),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
builder = SparkSession.builder.master("local[4]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
END
}

# install PACKAGE==VERSION...: a virtual environment with these packages. PYTHON is the interpreter.
install() {
    "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || not_run 'Python 3.11 or later is needed'
    "${PYTHON:-python3}" -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check "$@" >"$folder/pip" 2>&1 ||
        not_run "the packages could not be installed: $*"
    echo "$finding: $("$folder/venv/bin/python" -V), $*"
}

# expect <<'END': the output that was seen.
expect() {
    cat >"$folder/expected"
}

# run <<'PYTHON': run the program, show its output, and compare it with what was seen.
run() {
    mkdir "$folder/work"
    local name unset=()
    for name in $(compgen -e); do # settings of the user that change how these packages behave
        case $name in
            PYTHON* | AWS_* | AZURE_* | GOOGLE_* | GCSFS_* | FSSPEC_* | SPARK_* | PYSPARK_* | HADOOP_* | PYICEBERG_* | POLARS_* | DAFT_*)
                unset+=(-u "$name") ;;
        esac
    done
    cat >"$folder/program.py"
    (
        cd "$folder/work"
        env ${unset[@]+"${unset[@]}"} HOME="$folder" TMPDIR="$folder/work" TZ=UTC LC_ALL=C.UTF-8 \
            PYSPARK_PYTHON="$folder/venv/bin/python" \
            "$folder/venv/bin/python" -W ignore "$folder/program.py" >"$folder/seen" 2>"$folder/errors"
    ) || {
        ! grep -qE 'unresolved dependency|download failed' "$folder/errors" || not_run 'the JARs could not be fetched'
        tail -n 20 "$folder/errors" >&2
        cat "$folder/seen"
        echo "$finding: changed: the program failed" >&2
        exit 1
    }
    cat "$folder/seen"
    diff "$folder/expected" "$folder/seen" || {
        echo "$finding: changed: the lines after > are not those that were seen before, after <" >&2
        exit 1
    }
}
