"""The options of a stream from a table, beside delta-spark: the same table and options give the same batches.

Tests of spark.options.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.spark import options as source_options
from refdelta.spark import typed_errors
from refdelta.spark.source import RefdeltaSource
from spark.test_not_read import OF_READS, OF_WRITES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]

EXCLUDED = (
    "k=k1", "^k=k0/", r"part-0000[0-3]", r"\.parquet$", "(?i)K=K0/", "none", "k=k[^0]/.*[05]", "[a-f]{2}.*[02468]",
)  # fmt: skip


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "k": [f"k{number % 3}" for number in ids]})


class History:
    """A table with a random history.

    Args:
        uri: the table's folder, which does not exist yet.
        dice: the source of all choices.
    """

    def __init__(self, uri: Path, dice: Random):
        self.uri, self._dice, self._next = uri, dice, 0
        self._partitions = dice.choice([None, "k"])
        self._vectors = dice.choice(["true", "false"])
        self.append()

    def append(self) -> None:
        count = self._dice.randint(1, 5)
        properties = {"delta.enableDeletionVectors": self._vectors} if self._next == 0 else None
        write_deltalake(
            self.uri, rows(self._next, count), mode="append", partition_by=self._partitions, configuration=properties
        )
        self._next += count

    def step(self) -> None:
        """One more commit, more or less."""
        table, below = DeltaTable(self.uri), self._dice.randint(0, self._next)
        match self._dice.choice("aaaduopmx"):
            case "a":
                self.append()
            case "d":
                table.delete(f"id % 4 = {below % 4}")
            case "u":
                table.update({"id": "id + 1000"}, predicate=f"id = {below}")
            case "o":
                table.optimize.compact()
            case "p":
                table.delete(f"k = 'k{below % 3}'")
            case "m":
                source = rows(max(0, self._next - 2), 4)
                merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
                self._next += 2
            case "x":
                write_deltalake(self.uri, rows(self._next, 2), mode="overwrite")
                self._next += 2


def asked(dice: Random) -> dict[str, str]:
    """Random options of a stream."""
    options = {"maxFilesPerTrigger": str(dice.choice([1, 2, 3, 1000]))}
    if dice.random() < 0.5:
        options["startingVersion"] = str(dice.randint(0, 2))
    for name in ("ignoreChanges", "ignoreDeletes", "skipChangeCommits", "ignoreFileDeletion"):
        if dice.random() < (0.6 if name == "ignoreChanges" else 0.15):
            options[name] = "true"
    if dice.random() < 0.5:
        options["excludeRegex"] = dice.choice(EXCLUDED)
    if dice.random() < 0.3:
        options["failOnDataLoss"] = dice.choice(["true", "false"])
    return options


def run(session: Any, form: str, uri: Path, checkpoint: Path, options: dict[str, str]) -> tuple[list[Rows], str | None]:
    """The rows of each batch that is not empty, of all that there is now, and the error that ended the stream."""
    found: list[Rows] = []

    def take(batch: Any, _: int) -> None:
        if taken := sorted(map(tuple, batch.collect()), key=repr):
            found.append(taken)

    oracle.clear_cache(session)
    frame = session.readStream.format(form).options(**options).load(str(uri))
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        return found, str(error)
    return found, None


@pytest.mark.sample(test=2)
@pytest.mark.parametrize("seed", range(40))
def test_random_options_give_the_batches_of_delta_spark(session: Any, tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    history = History(tmp_path / "t", dice)
    for _ in range(dice.randint(2, 5)):
        history.step()
    options = asked(dice)
    for _ in range(2):
        ours, our_error = run(session, "refdelta", history.uri, tmp_path / "ours", options)
        theirs, their_error = run(session, "delta", history.uri, tmp_path / "theirs", options)
        assert (our_error is None) == (their_error is None), (options, our_error, their_error)
        if their_error is not None:
            # delta-spark looks at the commit after a batch before it reads the batch.
            assert ours[: len(theirs)] == theirs
            return
        assert ours == theirs, options
        for _ in range(dice.randint(1, 4)):
            history.step()


def lose(uri: Path, *versions: int) -> None:
    """Remove the commits of these versions, as the cleanup of a log does, which has a checkpoint after them."""
    for version in versions:
        for path in (uri / "_delta_log").glob(f"{version:020d}.*"):
            path.unlink()


@pytest.mark.parametrize("read", [True, False], ids=["with a checkpoint", "from a version"])
def test_a_stream_continues_after_lost_commits_from_its_checkpoint_alone(
    session: Any, tmp_path: Path, *, read: bool
) -> None:
    uri = tmp_path / "t"
    for number in range(3):
        write_deltalake(uri, rows(number, 1), mode="append")
    options = {} if read else {"startingVersion": "1"}
    forms = ("refdelta", "delta")
    if read:
        for form in forms:
            assert run(session, form, uri, tmp_path / form, options) == ([[(0, "k0"), (1, "k1"), (2, "k2")]], None)
    for number in range(3, 8):
        write_deltalake(uri, rows(number, 1), mode="append")
    DeltaTable(uri).create_checkpoint()
    write_deltalake(uri, rows(8, 1), mode="append")
    lose(uri, *range(5))
    for form in forms:
        found, error = run(session, form, uri, tmp_path / form, options)
        assert found == []
        assert error is not None, form
        found, error = run(session, form, uri, tmp_path / form, {**options, "failOnDataLoss": "false"})
        if read and form == "refdelta":
            assert (found, error) == ([[(number, f"k{number % 3}") for number in range(5, 9)]], None)
        else:  # delta-spark needs the version at which the stream began, even so
            assert found == []
            assert error is not None, form


def test_a_missing_data_file_ends_both_streams_whatever_fail_on_data_loss_says(session: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write_deltalake(uri, rows(0, 1))
    write_deltalake(uri, rows(1, 1), mode="append")
    next(uri.glob("*.parquet")).unlink()
    for form in ("refdelta", "delta"):
        found, error = run(session, form, uri, tmp_path / form, {"failOnDataLoss": "false"})
        assert found == []
        assert error is not None, form


def test_each_option_of_delta_spark_is_taken_or_refused_by_name() -> None:
    known = {*source_options.READ, *source_options.WRITE, *source_options.STREAM_READ, *source_options.STREAM_WRITE}
    for name in OF_READS | OF_WRITES:
        refusals = []
        for kind in (source_options.STREAM_READ, source_options.WRITE, source_options.STREAM_WRITE):
            try:
                source_options.check_names({name: "1"}, kind, "streams")
            except errors.InvalidArgumentError as error:
                refusals.append(str(error))
        refused = [said for said in refusals if said.startswith(f"option '{name}' ")]
        assert name in known or any("does not exist in" not in said for said in refused), name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schemaTrackingLocation": "x"}, "'schemaTrackingLocation' is not needed: a commit"),
        ({"ALLOWSOURCECOLUMNDROP": "always"}, "'allowSourceColumnDrop' is not needed"),
        ({"versionAsOf": "0"}, "'versionAsOf' is for one version; startingVersion"),
        ({"endingVersion": "3"}, "'endingVersion' is for a batch"),
        ({"withEventTimeOrder": "true"}, "'withEventTimeOrder' does not exist here; refdelta.spark.read"),
        ({"excludeRegex": "a("}, "excludeRegex: .*"),
        ({"excludeRegex": "(?=a)b"}, "excludeRegex: .*lookahead"),
        ({"excludeRegex": r"(a)\1"}, "excludeRegex: .*"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"readChangeFeed": "true", "ignoreChanges": "true"}, "remove ignoreDeletes, ignoreChanges"),
    ],
)
def test_options_that_are_refused_say_what_to_do(
    session: Any, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    uri = tmp_path / "t"
    write_deltalake(uri, rows(0, 1), configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(errors.InvalidArgumentError, match=said), typed_errors():
        RefdeltaSource({"path": str(uri), **options}).streamReader(session.range(1).schema)
