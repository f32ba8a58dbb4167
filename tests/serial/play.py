"""Programs played through the public API."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import random
import shutil
import tempfile
import time
import traceback
import types
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, Identity, errors, verify, write_deltalake
from refdelta.operations.shared.row_ids import backfill
from refdelta_storage import memory, open_store
from serial import world as w
from serial.judge import Committed
from serial.programs import ALONE, COLUMNS, FEW_FILES, NUMBER, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from refdelta.api.table_transaction import TableTransaction
    from refdelta.api.transaction import WriteTransaction
    from serial.expressions import Expression

USER_ERRORS = (
    errors.InvalidArgumentError,
    errors.ExpressionError,
    errors.SchemaMismatchError,
    errors.ConstraintViolationError,
    errors.UnsupportedFeatureError,
)
PLACE_ERRORS = (errors.TableNotFoundError, errors.TableAlreadyExistsError)
"""Errors of those who find no table, or one: expected where the program begins without a table."""
BOUNDS = (("refdelta.core.conflicts.precedence", "_FILES_KEPT"),)
"""The engine's bounds on what it remembers of winners' files."""
_CONSTRAINT = "delta.constraints."
_BY = "transactionOfProgram"
_AGO = 10 * 24 * 3600 * 1000
_START = 1_800_000_000_000
_TICK = 1000


class Clock:
    """The time of a program: it advances by a second at each point. The clocks of writers may be behind the store's."""

    def __init__(self) -> None:
        self.now_ms = _START - _AGO
        self.lag_ms = 0

    def tick(self, lag_ms: int = 0) -> None:
        self.now_ms, self.lag_ms = self.now_ms + _TICK, lag_ms

    def writer(self) -> int:
        return (self.now_ms - self.lag_ms) * 1_000_000

    def store(self) -> int:
        return self.now_ms * 1_000_000


@contextlib.contextmanager
def _fixed(program: Program, clock: Clock | None) -> Iterator[None]:
    """Names of files that are the same each time, and a program's own time."""
    dice = random.Random(program.seed)

    def name() -> uuid.UUID:
        return uuid.UUID(int=dice.getrandbits(128), version=4)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(uuid, "uuid4", name))
        if program.forgetful:
            for module, name in BOUNDS:
                if importlib.util.find_spec(module) is not None:
                    stack.enter_context(mock.patch(f"{module}.{name}", FEW_FILES))
        if clock is not None:
            stack.enter_context(mock.patch.object(time, "time_ns", clock.writer))
            stack.enter_context(mock.patch.object(memory, "time", types.SimpleNamespace(time_ns=clock.store)))
        yield


@contextlib.contextmanager
def _place(program: Program) -> Iterator[tuple[str, str | None]]:
    """Where the table is, and a second name of that place where it has one."""
    if program.linked:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        (folder / "t").mkdir()
        (folder / "link").symlink_to(folder / "t")
        try:
            yield str(folder / "t"), str(folder / "link")
        finally:
            shutil.rmtree(folder)
        return
    uri = "memory://serial-programs"
    store = open_store(uri)
    store.delete([info.key for info in store.list()])
    yield uri, None


@dataclass
class Running:
    """A transaction of a program.

    Attributes:
        number: its number.
        transaction: what it is.
        left: the steps that it has not done.
        txn: the engine's transaction.
        source: a handle that was opened when it began.
        began: the version that it sees.
        outcome: what became of it.
        observed: what it read.
        error: what it was ended by.
    """

    number: int
    transaction: w.Transaction
    left: list[w.Step]
    txn: WriteTransaction | None = None
    source: DeltaTable | None = None
    began: int = -1
    version: int | None = None
    outcome: str = "not begun"
    observed: list[object] = field(default_factory=list)
    error: Exception | None = None


@dataclass
class Outcome:
    """What became of a program.

    Attributes:
        program: the program.
        running: its transactions.
        start: the table before, by the oracle.
        end: the table after; None where it cannot be read.
        unsound: broken invariants.
        steps: the versions that the committed transactions made, as they are read.
    """

    program: Program
    running: list[Running]
    start: w.World
    end: w.World | None = None
    unsound: list[str] = field(default_factory=list)
    rows: dict[int, Counter[w.Row]] = field(default_factory=dict)

    @property
    def history(self) -> list[Committed]:
        return [
            Committed(f"T{one.number}", one.transaction, one.began, one.version, tuple(one.observed))
            for one in self.running
            if one.outcome in ("committed", "wrote nothing")
        ]


def play(program: Program) -> Outcome:
    """Play a program, and look at what is left of the table."""
    clock = None if program.linked else Clock()
    with _place(program) as (uri, link), _fixed(program, clock):
        return _Player(program, uri, link, clock).play()


class _Player:
    def __init__(self, program: Program, uri: str, link: str | None, clock: Clock | None) -> None:
        self.program = program
        self.uri, self.link, self.clock = uri, link, clock
        self.running = [Running(n, one, list(one.steps)) for n, one in enumerate(program.transactions)]
        self.schedule = list(program.schedule)

    def tick(self, lag_ms: int = 0) -> None:
        if self.clock is not None:
            self.clock.tick(lag_ms)

    def play(self) -> Outcome:
        self.set_up()
        outcome = Outcome(self.program, self.running, self.program.world)
        if self.clock is not None:
            self.clock.now_ms += _AGO
        self.play_until(None)
        self.tick()
        self.look(outcome)
        return outcome

    def set_up(self) -> None:
        program = self.program
        if program.absent:
            return
        configuration = dict(program.properties) | {f"delta.feature.{name}": "supported" for name in program.features}
        table = DeltaTable.create(
            self.uri,
            _schema((*COLUMNS, *([NUMBER] if program.numbered else []))),
            configuration=configuration,
            partition_by=["p"] if program.partitioned else None,
            cluster_by=list(program.clustering) or None,
            identity={NUMBER: Identity()} if program.numbered else None,
        )
        for version, step in enumerate(program.setup, start=1):
            self.tick()
            one = Running(-1, w.Transaction((step,)), [step], table.begin(), table)
            act(step, one, self)
            one.txn.commit()
            if table.version() != version:
                # Nothing was written: a version all the same, so that the oracle's numbers are the log's.
                table.alter.set_table_properties({f"filler.{version}": "x"})

    # --- the schedule ---

    def play_until(self, number: int | None) -> None:
        """Go on in the schedule, up to the next point of a transaction, which is left to it."""
        while self.schedule:
            turn = self.schedule.pop(0)
            if turn == number:
                return
            self.advance(self.running[turn])

    def advance(self, one: Running) -> None:
        self.tick(self.program.lags[one.number])
        if one.outcome not in ("not begun", "begun"):
            return
        try:
            if isinstance(one.transaction.steps[0], ALONE):
                if one.outcome == "not begun":
                    self.run_alone(one)
            elif one.outcome == "not begun":
                self.begin(one)
            elif one.left:
                act(one.left.pop(0), one, self)
            else:
                self.finish(one, one.txn.commit().version)
        except errors.ConcurrentModificationError as error:
            one.outcome, one.error = "conflict", error
        except USER_ERRORS as error:
            self.give_up(one, error)
        except errors.DataFileNotFoundError as error:
            if any(isinstance(step, w.Restore) for step in one.transaction.steps):
                self.give_up(one, error)
            else:
                one.outcome, one.error = "error", error
        except PLACE_ERRORS as error:
            if self.program.absent:
                self.give_up(one, error)
            else:
                one.outcome, one.error = "error", error
        except Exception as error:
            one.outcome, one.error = "error", error

    def give_up(self, one: Running, error: Exception) -> None:
        one.outcome, one.error = "failed", error
        if one.txn is not None:
            with contextlib.suppress(errors.InvalidArgumentError):
                one.txn.abort()

    def begin(self, one: Running) -> None:
        table = DeltaTable(self.uri)
        asked = one.transaction
        app_id, app_version = asked.application or (None, None)
        one.txn = table.begin(isolation=asked.isolation, app_id=app_id, app_version=app_version)
        one.source = DeltaTable(self.link or self.uri)
        one.began, one.outcome = one.txn.version, "begun"

    def finish(self, one: Running, version: int | None) -> None:
        one.version, one.outcome = version, "wrote nothing" if version is None else "committed"

    def run_alone(self, one: Running) -> None:
        """A step of several commits. The others go on between these."""
        one.began, one.outcome = self.newest(), "begun"
        table = None if self.program.absent else DeltaTable(self.uri)
        [step] = one.transaction.steps

        def pause() -> None:
            self.play_until(one.number)
            self.tick(self.program.lags[one.number])

        match step:
            case w.Vacuum():
                result = table.vacuum(dry_run=False, progress=lambda _done, _total: pause())
                self.finish(one, result.version)
            case w.DropFeature(name):
                _pausing(table, pause)
                self.finish(one, table.alter.drop_feature(name).version)
            case w.Write(rows, columns, mode, schema_mode, predicate):
                schema = _schema(columns)

                def batches() -> Iterator[pa.RecordBatch]:
                    for row in rows:
                        yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in columns}], schema)
                        pause()

                result = write_deltalake(
                    self.uri if table is None else table,
                    batches(),
                    mode=mode,
                    schema_mode=schema_mode,
                    predicate=_sql(predicate),
                    configuration=self.program.properties if self.program.absent else None,
                )
                self.finish(one, result.version)
            case w.Create(columns, mode, properties):
                DeltaTable.create(
                    self.uri,
                    _Late(_schema(columns), pause),
                    mode,
                    configuration={**self.program.properties, **properties},
                    commit_properties=CommitProperties(custom_metadata={_BY: str(one.number)}),
                )
                history = DeltaTable(self.uri).history()
                made = [entry["version"] for entry in history if entry.get(_BY) == str(one.number)]
                self.finish(one, made[0] if made else None)
        if one.version is None and isinstance(step, w.Create | w.Write):
            # A table was there, or came to be there meanwhile: with that one it has done nothing.
            one.began = self.newest()

    def newest(self) -> int:
        """The newest version; -1 where there is no table."""
        return DeltaTable(self.uri).version() if DeltaTable.is_deltatable(self.uri) else -1

    # --- afterwards ---

    def look(self, outcome: Outcome) -> None:
        unsound = outcome.unsound
        try:
            table = DeltaTable(self.uri)
            outcome.end = self.world_of(table)
            if self.program.level == "Serializable":
                for one in self.running:
                    if one.version is not None:
                        then = DeltaTable(self.uri, version=one.version)
                        outcome.rows[one.version] = _counted(then.to_pyarrow_table())
            unsound += _broken(table)
            unsound += _given_twice(table) if self.program.numbered else []
            report = verify(self.uri, sample=None)
            unsound += [f"verify: {finding.clause}: {finding.message}" for finding in report.errors]
            unsound += [f"verify, unchecked: {what}" for what in report.unchecked]
        except Exception as error:
            unsound.append(f"{type(error).__name__}: {error}")

    def world_of(self, table: DeltaTable) -> w.World:
        data = table.to_pyarrow_table()
        configuration = table.metadata().configuration
        conditions = {name: None for name in configuration if name.startswith(_CONSTRAINT)}
        domains = table.domain_metadata()
        applications = {name: table.transaction_version(name) for name in "xy"}
        return w.World(
            columns=tuple(name for name in data.column_names if name != NUMBER),
            rows=tuple(_counted(data).elements()),
            not_null=frozenset(item.name for item in pa.schema(table.schema()) if not item.nullable) - {NUMBER},
            constraints={name[len(_CONSTRAINT) :]: None for name in conditions},
            properties={name: value for name, value in configuration.items() if name.startswith("user.")},
            clustering=tuple(table.detail()["clustering_columns"]),
            domains={name: text for name, text in domains.items() if not name.startswith("delta.")},
            applications={name: version for name, version in applications.items() if version is not None},
        )


def _pausing(table: DeltaTable, pause: Callable[[], None]) -> None:
    """Have a handle pause before each commit of the transactions that it begins."""
    begin = table._handle.begin

    def paused(**options: Any) -> TableTransaction:
        txn = begin(**options)
        commit = txn.commit

        def late() -> Any:
            pause()
            return commit()

        txn.commit = late
        return txn

    table._handle.begin = paused


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in columns])


class _Late:
    """A schema that lets others go on before it is read: after the writer has looked whether there is a table."""

    def __init__(self, schema: pa.Schema, pause: Callable[[], None]) -> None:
        self.schema, self.pause = schema, pause

    def __arrow_c_schema__(self) -> Any:
        self.pause()
        return self.schema.__arrow_c_schema__()


def _counted(data: pa.Table) -> Counter[w.Row]:
    """The rows, without the numbers that the table gives them."""
    columns = [data[name].to_pylist() for name in data.column_names if name != NUMBER]
    return Counter(zip(*columns, strict=True))


def _broken(table: DeltaTable) -> Iterator[str]:
    """Invariants that do not hold."""
    stamps = [(entry["version"], entry["timestamp"]) for entry in reversed(table.history())]
    for (_, before), (version, stamp) in itertools.pairwise(stamps):
        if stamp <= before:
            yield f"the timestamp of version {version}, {stamp}, is not after {before}, that of the version before"
    features = set(table.detail()["table_features"])
    domains = table.domain_metadata()
    if domains and "domainMetadata" not in features:
        yield f"the table has the domains {sorted(domains)}, and not the feature domainMetadata"
    if "delta.clustering" in domains:
        physical = _physical_names(table)
        for path in json.loads(domains["delta.clustering"])["clusteringColumns"]:
            if path[0] not in physical:
                yield f"the clustering domain names the column {path[0]}, and the table has {sorted(physical)}"
    if table.detail()["num_deletion_vectors"] and "deletionVectors" not in features:
        yield "files have deletion vectors, and the table has not the feature"


def _given_twice(table: DeltaTable) -> Iterator[str]:
    numbers = Counter(table.to_pyarrow_table()[NUMBER].to_pylist())
    if wrong := [number for number, count in numbers.items() if number is None or count > 1]:
        yield f"rows have no number of their own in the identity column: {wrong} of {numbers}"


def _physical_names(table: DeltaTable) -> set[str]:
    """The physical names of the columns, as the newest metaData action of the log has them."""
    names: set[str] = set()
    for info in table.store.list("_delta_log/"):
        if info.key.endswith(".json"):
            for line in table.store.get(info.key).splitlines():
                if (found := json.loads(line).get("metaData")) is not None:
                    fields = json.loads(found["schemaString"])["fields"]
                    names = {item["metadata"].get("delta.columnMapping.physicalName", item["name"]) for item in fields}
    return names


# --- steps, the engine's side ----------------------------------------------------------------------------------------


def act(step: w.Step, one: Running, player: _Player) -> None:
    """Do a step in the engine."""
    txn = one.txn
    match step:
        case w.Read(predicate):
            one.observed.append(_counted(txn.read(predicate=_sql(predicate))))
        case w.Tally(_, predicate):
            txn.append(_data(one, [step.row(txn.read(predicate=_sql(predicate)).to_pylist())]))
        case w.TallyDomain(domain, predicate):
            txn.set_domain_metadata(domain, str(txn.read(predicate=_sql(predicate)).num_rows))
        case w.SetDomain(domain, configuration):
            txn.set_domain_metadata(domain, configuration)
        case w.Count(domain, by_transaction):
            domains = (txn if by_transaction else one.source).domain_metadata()
            txn.set_domain_metadata(domain, step.next_of(domains))
        case w.RemoveDomain(domain):
            txn.set_domain_metadata(domain, None)
        case w.TallyDomains():
            txn.append(_data(one, [step.row(txn.domain_metadata())]))
        case w.Append(rows):
            txn.append(_data(one, rows))
        case w.Copy():
            txn.append(_source(step, one))
        case w.Delete(predicate):
            txn.delete(_sql(predicate))
        case w.Update(values, predicate):
            txn.update(_texts(values), predicate=_sql(predicate))
        case w.Merge(source, on, clauses):
            rows = _source(source, one) if isinstance(source, w.Copy) else _data(one, source)
            _merge(txn.merge(rows, str(on)), clauses)
        case w.Overwrite(rows, predicate):
            txn.overwrite(_data(one, rows), _sql(predicate))
        case w.Attempt(inner, well, failed):
            observed = len(one.observed)
            try:
                act(inner, one, player)
            except USER_ERRORS:
                del one.observed[observed:]
                rows = failed
            else:
                rows = well
            if rows:
                txn.append(_data(one, rows))
        case _:
            _alter(step, txn)


def _alter(step: w.Step, txn: WriteTransaction) -> None:
    match step:
        case w.AddConstraint(name, condition):
            txn.add_constraint({name: str(condition)})
        case w.DropConstraint(name):
            txn.drop_constraint(name)
        case w.DropColumn(name):
            txn.drop_columns([name])
        case w.RenameColumn(name, new):
            txn.rename_column(name, new)
        case w.AddColumn(name):
            txn.add_columns(pa.schema([(name, pa.int64())]))
        case w.SetNotNull(name):
            txn.set_nullable(name, False)
        case w.SetProperty(name, value):
            txn.set_table_properties({name: value})
        case w.ClusterBy(columns):
            txn.cluster_by(list(columns))
        case w.Restore(version):
            txn.restore(version)
        case w.Rearrange("compact"):
            txn.compact()
        case w.Rearrange("z_order"):
            txn.z_order(["k", "v"])
        case w.Rearrange("cluster"):
            txn.cluster()
        case w.Rearrange("purge"):
            txn.reorg_purge()
        case w.Backfill():
            txn._transaction.run("backfill_row_ids", backfill, 1)
        case w.AddFeature(name):
            txn.add_feature(name, True)
        case _:
            raise TypeError(step)


def _sql(predicate: Expression | None) -> str | None:
    return None if predicate is None else str(predicate)


def _texts(values: Mapping[str, Expression]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _data(one: Running, rows: Sequence[w.Given]) -> pa.Table:
    """Rows with the columns that the table has."""
    schema = _schema([name for name in pa.schema(one.source.schema()).names if name != NUMBER])
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _source(copy: w.Copy, one: Running) -> Any:
    """Rows of the table itself."""
    sql = _sql(copy.predicate)
    match copy.form:
        case "handle":
            return one.source
        case "read":
            return one.txn.read(predicate=sql)
        case "list":
            return [one.source.scan(None, sql)]
        case "generator":
            return (scan for scan in [one.source.scan(None, sql)])
        case "late":
            return _later(one.source.scan(None, sql))
    return one.source.scan(None, sql)


def _later(scan: Any) -> Iterator[Any]:
    """The scan after a table without rows, so that it is opened when the rows are written already."""
    yield scan.to_reader().schema.empty_table()
    yield scan


def _merge(merger: Any, clauses: Sequence[w.Clause]) -> None:
    for clause in clauses:
        predicate = _sql(clause.predicate)
        values = None if clause.values is None else _texts(clause.values)
        match clause.when, values:
            case "matched", None:
                merger.when_matched_delete(predicate)
            case "matched", _:
                merger.when_matched_update(values, predicate)
            case "not matched", _:
                merger.when_not_matched_insert(values, predicate)
            case "by source", None:
                merger.when_not_matched_by_source_delete(predicate)
            case "by source", _:
                merger.when_not_matched_by_source_update(values, predicate)
    merger.execute()


def shown_error(error: Exception) -> str:
    """An unexpected error, with the lines where it was raised."""
    return "".join(traceback.format_exception(error)[-3:])
