"""Random histories of tables, as statements that delta-spark is to run: ``{t}`` in them is the table.

A :class:`History` proposes one statement after the other and says what the table would be behind it. Whoever runs them
says which were taken: delta-spark may refuse some, and the table is then what it was.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from random_sql import VOID, WIDER, Maker, Path, Plain, Struct, Type, changed, quoted, sql_type, text, walk
from random_sql import within as named_parts

KEY = "k"
CHECKPOINT = "CHECKPOINT"
"""In place of a statement, which SQL has none for."""


@dataclass(frozen=True)
class State:
    """What a table is at one version.

    Attributes:
        columns: the columns, in order.
        partitions: names of those that partition it.
        clusters: names of those that it is clustered by.
        properties: what was set.
        made: names of the columns whose values the table makes.
        constraints: names of its CHECK constraints.
    """

    columns: Struct
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    def is_on(self, name: str) -> bool:
        return self.properties.get(f"delta.{name}") == "true"

    @property
    def mapped(self) -> bool:
        return self.properties["delta.columnMapping.mode"] != "none"

    @property
    def given(self) -> list[str]:
        """Columns that an INSERT can name."""
        return [name for name, kind in self.columns.fields if name not in self.made and kind != VOID]


@dataclass(frozen=True)
class Statement:
    """One statement, and what the table is behind it."""

    sql: str
    after: State


class History:
    """One table's random history.

    Attributes:
        seed: what gives it again.
        settings: those of the session that it is to be written in.
        state: what the table is by now.
        past: what it was at versions before, as :meth:`took` was told.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.make = Maker(random.Random(seed))
        self.dice = self.make.dice
        self.settings = self._settings()
        self.rows = 0
        self.past: dict[int, State] = {}
        self.state = State(Struct(()))

    def took(self, statement: Statement, version: int) -> None:
        """Say that a statement was run, and which version the table has now."""
        self.state = statement.after
        self.past[version] = self.state
        self.make.odd_names = self.state.mapped

    # --- the first version ---

    def _settings(self) -> dict[str, str]:
        choice = self.dice.choice
        pages_of_today = self.make.chance(0.25)
        return {
            "parquet.writer.version": "PARQUET_2_0" if pages_of_today else "PARQUET_1_0",
            # It misreads texts of such pages: "\x01" for "1".
            "spark.sql.parquet.enableVectorizedReader": str(not pages_of_today).lower(),
            "spark.sql.parquet.outputTimestampType": choice(["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MICROS"]),
            "spark.sql.parquet.writeLegacyFormat": choice(["true", "false", "false"]),
            "spark.sql.session.timeZone": choice(["UTC", "UTC", "America/Los_Angeles", "Asia/Kathmandu"]),
            "spark.sql.parquet.compression.codec": choice(["snappy", "zstd", "gzip", "uncompressed"]),
            "spark.sql.files.maxRecordsPerFile": choice(["0", "0", "2"]),
            "spark.databricks.delta.writeChecksumFile.enabled": choice(["true", "false", "false"]),
            "spark.databricks.delta.checkpointV2.topLevelFileFormat": choice(["json", "parquet"]),
            "spark.sql.sources.partitionOverwriteMode": choice(["static", "static", "dynamic"]),
        }

    def create(self) -> Statement:
        choice, chance = self.dice.choice, self.make.chance
        mode = choice(["none", "name", "id"])
        self.make.odd_names = mode != "none"
        fields = [(self.make.name(), self.make.type()) for _ in range(self.dice.randint(1, 6))]
        # No more than a column of each kind that the table has rules for.
        rules: dict[str, tuple[str, str]] = {}
        if chance(0.25):
            rules[self.make.name()] = ("INT", f"GENERATED ALWAYS AS ({KEY} % 5)")
        days = [name for name, kind in fields if kind in (Plain("TIMESTAMP"), Plain("STRING"))]
        if days and chance(0.5):
            source = choice(days)
            of_time = dict(fields)[source] == Plain("TIMESTAMP")
            made = f"CAST({quoted(source)} AS DATE)" if of_time else f"SUBSTRING({quoted(source)}, 1, 1)"
            rules[self.make.name()] = ("DATE" if of_time else "STRING", f"GENERATED ALWAYS AS ({made})")
        made = tuple(rules)
        if chance(0.15):
            number = self.make.name()
            rules[number] = ("BIGINT", f"GENERATED {choice(['ALWAYS', 'BY DEFAULT'])} AS IDENTITY")
            made = (*made, number)
        if chance(0.2):
            rules[self.make.name()] = ("STRING", "DEFAULT 'd e'")
        fields += [(name, Plain(kind)) for name, (kind, _) in rules.items()]
        fields.insert(self.dice.randint(0, len(fields)), (KEY, Plain("INT")))
        rules[KEY] = ("INT", choice(["", "NOT NULL"]))
        columns = Struct(tuple(fields))
        numbers = [name for name, (_, rule) in rules.items() if "IDENTITY" in rule]
        simple = [name for name, kind in fields if isinstance(kind, Plain) and name not in (KEY, *numbers)]
        placed = self.dice.sample(simple, min(len(simple), choice([0, 0, 1, 2])))
        properties = self._properties(mode)
        clusters = tuple(name for name in placed if dict(fields)[name] not in (Plain("BINARY"), Plain("BOOLEAN")))
        clustered = chance(0.3) and bool(clusters)
        how = ("CLUSTER BY", clusters) if clustered else ("PARTITIONED BY", tuple(placed))
        if clustered:
            properties["delta.dataSkippingNumIndexedCols"] = "32"  # else delta-spark refuses
        if any("DEFAULT " in rule and "BY DEFAULT" not in rule for _, rule in rules.values()):
            properties["delta.feature.allowColumnDefaults"] = "supported"
        state = State(columns, () if clustered else how[1], clusters if clustered else (), properties, made)
        sql = (
            f"CREATE TABLE {{t}} ({', '.join(self._declared(name, kind, rules) for name, kind in fields)}) USING delta "
        )
        sql += f"{how[0]} ({_listed(how[1])}) " if how[1] else ""
        return Statement(f"{sql}TBLPROPERTIES ({_assigned(properties)})", state)

    def _declared(self, name: str, kind: Type, rules: dict[str, tuple[str, str]]) -> str:
        return f"{quoted(name)} {sql_type(kind)} {rules.get(name, ('', ''))[1]}".strip()

    def _properties(self, mode: str) -> dict[str, str]:
        choice, chance = self.dice.choice, self.make.chance
        found = {
            "delta.columnMapping.mode": mode,
            "delta.enableDeletionVectors": choice(["true", "false"]),
            "delta.enableTypeWidening": choice(["true", "true", "false"]),
            "delta.enableRowTracking": choice(["true", "false"]),
            "delta.checkpointInterval": str(choice([2, 3, 10])),
            "delta.checkpoint.writeStatsAsStruct": choice(["true", "false"]),
            "delta.checkpoint.writeStatsAsJson": choice(["true", "true", "false"]),
            "delta.dataSkippingNumIndexedCols": str(choice([-1, 2, 32])),
            "delta.feature.timestampNtz": "supported",
        }
        found |= {"delta.checkpointPolicy": "v2"} if chance(0.4) else {}
        found |= {"delta.enableChangeDataFeed": "true"} if chance(0.35) else {}
        found |= {"delta.randomizeFilePrefixes": "true"} if chance(0.3) else {}
        found |= {"delta.enableInCommitTimestamps": "true"} if chance(0.2) else {}
        return found

    # --- what comes next ---

    def next(self) -> Statement:
        """A statement of a kind that makes sense for the table as it is."""
        kinds = [self.insert] * 4 + [self.delete, self.update, self.merge, self.widen] * 2
        kinds += [self.copy, self.overwrite, self.replace_where, self.add, self.rename, self.drop, self.move]
        kinds += [self.add_void, self.optimize, self.purge, self.restore, self.checkpoint]
        kinds += [self.set_property, self.constrain, self.cluster]
        while (found := self.dice.choice(kinds)()) is None:
            pass
        return found

    def insert(self) -> Statement:
        names = [name for name in self.state.given if name == KEY or self.make.chance(0.85)]
        return Statement(f"INSERT INTO {{t}} ({_listed(names)}) {self._values(names, 5)}", self.state)

    def copy(self) -> Statement:
        names = self.state.given
        chosen = ", ".join(f"{KEY} + 10" if name == KEY else quoted(name) for name in names)
        return Statement(
            f"INSERT INTO {{t}} ({_listed(names)}) SELECT {chosen} FROM {{t}} WHERE {KEY} < 50", self.state
        )

    def overwrite(self) -> Statement | None:
        if self.make.chance(0.5):
            return None
        names = self.state.given
        return Statement(f"INSERT OVERWRITE {{t}} ({_listed(names)}) {self._values(names, 3)}", self.state)

    def replace_where(self) -> Statement:
        # By position, so that the values are all columns'.
        if self.state.made or any(kind == VOID for _, kind in self.state.columns.fields):
            return self.delete()
        names = self.state.columns.names()
        first = self.dice.randint(1, self.rows + 1)
        rows = [self._row(names, self._key()) for _ in range(2)]
        return Statement(f"INSERT INTO {{t}} REPLACE WHERE {KEY} >= {first} VALUES {', '.join(rows)}", self.state)

    def delete(self) -> Statement:
        return Statement(f"DELETE FROM {{t}} WHERE {self._some_rows()}", self.state)

    def update(self) -> Statement | None:
        free = [(p, kind) for p, kind in named_parts(self.state.columns) if p[0] not in (KEY, *self.state.made)]
        free = [(path, kind) for path, kind in free if kind != VOID]
        if not free:
            return None
        path, kind = self.dice.choice(free)
        return Statement(
            f"UPDATE {{t}} SET {quoted(*path)} = {self.make.value(kind)} WHERE {self._some_rows()}", self.state
        )

    def merge(self) -> Statement:
        names = self.state.given
        rows = [self._row(names, key) for key in (*self.dice.sample(range(1, self.rows + 2), 2), self._key())]
        source = f"(SELECT * FROM VALUES {', '.join(rows)} AS v ({_listed(names)})) s"
        every = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in names)
        values = ", ".join(f"s.{quoted(name)}" for name in names)
        clauses = [f"WHEN MATCHED AND s.{KEY} % 3 = 0 THEN DELETE"] if self.make.chance(0.4) else []
        clauses += [f"WHEN MATCHED THEN UPDATE SET {every}"] if self.make.chance(0.8) else []
        if not clauses or self.make.chance(0.8):
            clauses.append(f"WHEN NOT MATCHED THEN INSERT ({_listed(names)}) VALUES ({values})")
        if self.make.chance(0.3):
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND t.{KEY} % 5 = 1 THEN DELETE")
        return Statement(f"MERGE INTO {{t}} t USING {source} ON t.{KEY} = s.{KEY} {' '.join(clauses)}", self.state)

    def add(self) -> Statement:
        kind = self.make.type(1)
        parents: list[Path] = [()] + [p for p, of in walk(self.state.columns) if p and isinstance(of, Struct)]
        parent = self.dice.choice(parents)
        name = self.make.name(of_field=bool(parent))
        place = self.dice.choice(["", "", " FIRST"])
        put = lambda of: Struct(((name, kind), *of.fields) if place else (*of.fields, (name, kind)))  # noqa: E731
        sql = f"ALTER TABLE {{t}} ADD COLUMN ({quoted(*parent, name)} {sql_type(kind)}{place})"
        return Statement(sql, replace(self.state, columns=changed(self.state.columns, parent, put)))

    def add_void(self) -> Statement | None:
        if self.make.chance(0.5):
            return None
        name = self.make.name()
        columns = Struct((*self.state.columns.fields, (name, VOID)))
        return Statement(f"ALTER TABLE {{t}} ADD COLUMN ({quoted(name)} VOID)", replace(self.state, columns=columns))

    def rename(self) -> Statement | None:
        if not self.state.mapped:
            return None
        path = self.dice.choice(self._fields())
        name = self.make.name(of_field=len(path) > 1)
        to = lambda of: Struct(tuple((name if n == path[-1] else n, kind) for n, kind in of.fields))  # noqa: E731
        columns = changed(self.state.columns, path[:-1], to)
        again = (lambda names: tuple(name if n == path[0] else n for n in names)) if len(path) == 1 else tuple
        state = self.state
        after = replace(
            state,
            columns=columns,
            partitions=again(state.partitions),
            clusters=again(state.clusters),
            made=again(state.made),
        )
        return Statement(f"ALTER TABLE {{t}} RENAME COLUMN {quoted(*path)} TO {quoted(name)}", after)

    def drop(self) -> Statement | None:
        free = [path for path in self._fields() if path[0] not in (*self.state.partitions, *self.state.clusters)]
        if not (self.state.mapped and free):
            return None
        path = self.dice.choice(free)
        if len(path) > 1 and len(self._fields(path[:-1])) == 1:
            return None  # a struct without fields
        without = lambda of: Struct(tuple(one for one in of.fields if one[0] != path[-1]))  # noqa: E731
        columns = changed(self.state.columns, path[:-1], without)
        made = tuple(name for name in self.state.made if (name,) != path)
        return Statement(
            f"ALTER TABLE {{t}} DROP COLUMN {quoted(*path)}", replace(self.state, columns=columns, made=made)
        )

    def move(self) -> Statement:
        path = self.dice.choice([(KEY,), *self._fields()])
        first = lambda of: Struct(tuple(sorted(of.fields, key=lambda one: one[0] != path[-1])))  # noqa: E731
        columns = changed(self.state.columns, path[:-1], first)
        return Statement(f"ALTER TABLE {{t}} ALTER COLUMN {quoted(*path)} FIRST", replace(self.state, columns=columns))

    def widen(self) -> Statement | None:
        parts = [(path, of) for path, of in walk(self.state.columns) if isinstance(of, Plain) and path != (KEY,)]
        allowed = self.state.is_on("enableTypeWidening")
        parts = [(path, of) for path, of in parts if of.sql in WIDER and (allowed or "CHAR" in of.sql)]
        if not parts:
            return None
        path, kind = self.dice.choice(parts)
        wider = Plain(self.dice.choice(WIDER[kind.sql]))
        after = replace(self.state, columns=changed(self.state.columns, path, lambda _: wider))
        return Statement(f"ALTER TABLE {{t}} ALTER COLUMN {quoted(*path)} TYPE {wider.sql}", after)

    def optimize(self) -> Statement:
        fields, state = self.state.columns.fields, self.state
        order = [n for n, of in fields if isinstance(of, Plain) and n not in state.partitions and of != VOID]
        if state.clusters:
            return Statement(f"OPTIMIZE {{t}}{self.dice.choice(['', ' FULL'])}", state)
        by = self.dice.sample(order, min(len(order), self.dice.choice([0, 1, 2])))
        return Statement(f"OPTIMIZE {{t}}{f' ZORDER BY ({_listed(by)})' if by else ''}", state)

    def purge(self) -> Statement | None:
        return (
            Statement("REORG TABLE {t} APPLY (PURGE)", self.state)
            if self.state.is_on("enableDeletionVectors")
            else None
        )

    def restore(self) -> Statement | None:
        versions = sorted(self.past)[1:-1]
        if not versions or self.make.chance(0.3):
            return None
        version = self.dice.choice(versions)
        return Statement(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}", self.past[version])

    def checkpoint(self) -> Statement:
        return Statement(CHECKPOINT, self.state)

    def set_property(self) -> Statement:
        free = {
            "delta.enableDeletionVectors": ["true", "false"],
            "delta.enableChangeDataFeed": ["true", "false"],
            "delta.enableRowTracking": ["true", "false"],
            "delta.enableTypeWidening": ["true"],
            "delta.enableInCommitTimestamps": ["true", "false"],
            "delta.checkpointPolicy": ["v2", "classic"],
            "delta.dataSkippingNumIndexedCols": ["0", "1", "32"],
            "delta.checkpoint.writeStatsAsStruct": ["true", "false"],
        } | ({} if self.state.mapped else {"delta.columnMapping.mode": ["name"]})
        name = self.dice.choice(list(free))
        new = {name: self.dice.choice(free[name])}
        return Statement(
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ({_assigned(new)})",
            replace(self.state, properties=self.state.properties | new),
        )

    def constrain(self) -> Statement:
        if self.state.constraints and self.make.chance(0.5):
            gone, *rest = self.state.constraints
            return Statement(f"ALTER TABLE {{t}} DROP CONSTRAINT {gone}", replace(self.state, constraints=tuple(rest)))
        name = f"rule{self.dice.randint(1, 99)}"
        after = replace(self.state, constraints=(*self.state.constraints, name))
        return Statement(f"ALTER TABLE {{t}} ADD CONSTRAINT {name} CHECK ({KEY} > -{self.dice.randint(1, 9)})", after)

    def cluster(self) -> Statement | None:
        if not self.state.clusters:
            return None
        fields = self.state.columns.fields
        free = [name for name, kind in fields if isinstance(kind, Plain) and kind not in (VOID, Plain("BOOLEAN"))]
        by = self.dice.sample(free, self.dice.randint(0, min(2, len(free))))
        sql = f"ALTER TABLE {{t}} CLUSTER BY {f'({_listed(by)})' if by else 'NONE'}"
        return Statement(sql, replace(self.state, clusters=tuple(by)))

    # --- parts of statements ---

    def _key(self) -> int:
        self.rows += 1
        return self.rows

    def _row(self, names: list[str], key: int) -> str:
        return f"({', '.join(str(key) if n == KEY else self.make.value(self.state.columns.field(n)) for n in names)})"

    def _values(self, names: list[str], most: int) -> str:
        return "VALUES " + ", ".join(self._row(names, self._key()) for _ in range(self.dice.randint(1, most)))

    def _some_rows(self) -> str:
        if self.make.chance(0.6):
            return f"{KEY} % {self.dice.choice([3, 4, 5])} = {self.dice.randint(0, 2)}"
        return self.make.predicate(self.state.columns)

    def _fields(self, parent: Path | None = None) -> list[Path]:
        """Fields of structs at any depth, or of one; the columns among them, but for the key."""
        found: list[Path] = []
        for path, kind in walk(self.state.columns):
            if isinstance(kind, Struct):
                found += [(*path, name) for name in kind.names()]
        return [path for path in found if path != (KEY,) and parent in (None, path[:-1])]


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(quoted(name) for name in names)


def _assigned(properties: dict[str, str]) -> str:
    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
