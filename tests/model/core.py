"""The conflict rules alone: the commit loop over a log in memory, and files that hold their rows in a dictionary.

What a statement stages is what copy-on-write makes of it, so the rules decide as they do in the engine; but nothing is
encoded, and many more histories can be run.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from model.branches import FILES, Branches, Committed, Staged, Version
from model.cases import Case
from model.judge import WRITE_SERIALIZABLE
from model.operations import Values, data_of
from refdelta.concurrency import effects
from refdelta.concurrency.commit import PreparedCommit, commit_loop
from refdelta.concurrency.isolation import level_of
from refdelta.concurrency.read_set import ReadSet, ReadTable
from refdelta.engine.sql import parse_predicate
from refdelta.protocol.actions import Add, AnyAction, Metadata, Protocol, Remove, Txn
from refdelta.protocol.codec import encode_commit
from refdelta.protocol.types import parse_schema

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("k", "a")],
    }
)
SCHEMA = parse_schema(SCHEMA_STRING)


@dataclass(frozen=True)
class File:
    """A data file: its action, and what would be in it."""

    add: Add
    rows: tuple[Values, ...]


class Core(Branches):
    """One table. A version's content is its files by path."""

    def __init__(self, level: str, *, partitioned: bool):
        super().__init__(level, partitioned=partitioned)
        self._numbers = count()
        self._predicates = {}
        self._table = ReadTable(schema=SCHEMA, partition_columns=("a",) if partitioned else (), parse=self._parse)
        if partitioned:
            files = self._write(row for file in FILES for row in file)
        else:
            files = [file for rows in FILES for file in self._write(rows)]
        log = encode_commit(
            [Protocol(min_reader_version=1, min_writer_version=2), self._metadata(), *(f.add for f in files)]
        )
        self.root = Version((log,), {file.add.path: file for file in files})

    def _parse(self, sql: str):
        if sql not in self._predicates:
            self._predicates[sql] = parse_predicate(sql, SCHEMA)
        return self._predicates[sql]

    def _metadata(self) -> Metadata:
        return Metadata(
            id="table",
            schema_string=SCHEMA_STRING,
            partition_columns=["a"] if self.partitioned else [],
            configuration={},
        )

    def _write(self, rows: Iterable[Values], *, data_change: bool = True) -> list[File]:
        by_partition = defaultdict(list)
        for row in rows:
            by_partition[row[1] if self.partitioned else None].append(row)
        return [self._file(a, tuple(held), data_change) for a, held in by_partition.items()]

    def _file(self, a: int | None, rows: tuple[Values, ...], data_change: bool) -> File:
        columns = (
            {"k": [k for k, _ in rows]} if self.partitioned else {"k": [k for k, _ in rows], "a": [a for _, a in rows]}
        )
        stats = {
            "numRecords": len(rows),
            "minValues": {name: min(values) for name, values in columns.items()},
            "maxValues": {name: max(values) for name, values in columns.items()},
            "nullCount": dict.fromkeys(columns, 0),
        }
        add = Add(
            path=f"file-{next(self._numbers)}",
            partition_values={} if a is None else {"a": str(a)},
            size=1,
            modification_time=1,
            data_change=data_change,
            stats=json.dumps(stats),
        )
        return File(add, rows)

    def stage(self, version: Version, case: Case, isolation: str | None) -> tuple[PreparedCommit, list[File]] | None:
        effect = case.statement("T", version.state)
        reads = ReadSet(version=version.number)
        actions: list[AnyAction] = []
        written: list[File] = []
        live: list[File] = list(version.content.values())
        if case.application and effect.writes:
            actions.append(Txn(app_id=case.application, version=1))
            reads = dataclasses.replace(reads, app_ids=frozenset({case.application}))
        if case.statement.alters:
            actions.append(self._metadata())
        elif case.kind == "compaction":
            written = self._write((row for file in live for row in file.rows), data_change=False)
            reads = reads.with_files(file.add for file in live)
            actions += [_remove(file, data_change=False) for file in live]
        else:
            found, gone = (
                {row.values for row in rows} for rows in (case.statement.found(version.state), effect.removed)
            )
            if case.sql is not None:
                reads = reads.with_predicate(self._parse(case.sql)) if case.sql else reads.with_everything()
            reads = reads.with_files(file.add for file in live if found.intersection(file.rows))
            touched = [file for file in live if gone.intersection(file.rows)]
            kept = [row for file in touched for row in file.rows if row not in gone]
            # As the engine does it: what is left of the files and what became of their rows, then what is new; a
            # MERGE writes both at once.
            before = {row.identity for row in effect.removed}
            merges = case.kind == "MERGE"
            changed = frozenset(row for row in effect.added if merges or row.identity[1] in before)
            written = self._write([*kept, *data_of(changed)]) + self._write(data_of(effect.added - changed))
            actions += [_remove(file, data_change=True) for file in touched]
        actions += [file.add for file in written]
        if not actions:
            return None
        table_level = None if self.level == WRITE_SERIALIZABLE else self.level
        prepared = PreparedCommit(
            read_version=version.number,
            read_set=reads,
            actions=actions,
            commit_info={
                "operation": case.kind,
                "readVersion": version.number,
                "isolationLevel": self.level,
                "isBlindAppend": case.sql is None and case.kind == "INSERT",
            },
            txn_id=str(next(self._numbers)),
            level=level_of(table_level, isolation),
            table=self._table,
        )
        return prepared, written

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        if staged.transaction is None:
            return None
        prepared, written = staged.transaction
        loop = commit_loop(prepared)
        data, reply = b"", None
        while True:
            try:
                effect = loop.send(reply)
            except StopIteration as done:
                outcome = done.value
                break
            match effect:
                case effects.Confirm():
                    reply = effects.Yes()
                case effects.PutIfAbsent(number, data):
                    reply = effects.Exists() if number <= version.number else effects.Created()
                case effects.ReadCommits(first, last):
                    reply = effects.Commits(version.log[first : last + 1])
                case effects.NewestVersion():
                    reply = effects.Newest(version.number)
                case effects.Pause():
                    reply = effects.Elapsed(0.0)
        assert outcome.version == version.number + 1
        gone = {action.path for action in prepared.actions if isinstance(action, Remove)}
        content = {path: file for path, file in version.content.items() if path not in gone}
        return Committed(data, content | {file.add.path: file for file in written}, list(outcome.rebased_over))

    def files(self, version: Version) -> list[tuple[str, dict[str, str | None], list[Values]]]:
        return [(path, file.add.partition_values, list(file.rows)) for path, file in version.content.items()]


def _remove(file: File, *, data_change: bool) -> Remove:
    add = file.add
    return Remove(
        path=add.path,
        deletion_timestamp=1,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
    )
