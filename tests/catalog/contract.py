"""The contract of a catalog as a test class: what ratifies, publishes, names and drops catalog-managed tables.

Subclass :class:`CatalogContract`, with two pytest fixtures::

    class TestMine(CatalogContract):
        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: MyCatalog(tmp_path)  # one more client of the same catalog

        @pytest.fixture
        def catalog(self, reopen):
            return reopen()

Faults are made at the :class:`~refdelta.engine.log.managed_log.Ratifier` and at the store of a table, so no catalog
needs a part for them.
"""

from __future__ import annotations

import concurrent.futures
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from refdelta import errors, write_deltalake
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log import managed_log
from refdelta.engine.log.managed_log import Exists, ManagedStore, RatifiedCommit, managed_by
from refdelta.transaction import background, prepared_commit
from refdelta_storage import Committed, StorageError, Unknown
from refdelta_storage.wrappers import WrapperStore

if TYPE_CHECKING:
    from refdelta import DeltaTable
    from refdelta.catalog import Catalog
    from refdelta.engine.log.managed_log import Ratifier

Reopen = Callable[[], "Catalog"]
Proposal = Callable[["Ratifier", RatifiedCommit], Any]

SCHEMA = pa.schema({"id": pa.int64()})
NAME = "sales.orders"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids]}, SCHEMA)


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table(["id"]).column("id").to_pylist())


def append(table: DeltaTable, *new: int) -> Any:
    return write_deltalake(table, rows(*new), mode="append")


def log_of(table: DeltaTable) -> ManagedStore:
    found = managed_by(table.store)
    assert found is not None, "the table's commits do not go through the catalog"
    return found


def raw(name: str) -> bytes:
    """A commit without files."""
    return encode_commit([CommitInfo(fields={"inCommitTimestamp": 1, "operation": "WRITE", "txnId": name})])


def infos(table: DeltaTable) -> list[dict[str, Any]]:
    """The commitInfo of each version, oldest first, as its readers find it."""
    contents = (table.store.get(commit_key(version)) for version in range(table.version() + 1))
    return [json.loads(data.splitlines()[0])["commitInfo"] for data in contents]


def check_log(catalog: Catalog, name: str = NAME) -> DeltaTable:
    """A fresh handle, whose versions are contiguous, of different transactions and of rising times."""
    table = catalog.table(name)
    assert [one["version"] for one in table.history()] == [*range(table.version(), -1, -1)]
    found = infos(table)
    transactions = [info["txnId"] for info in found]
    assert len(set(transactions)) == len(transactions), "a transaction is in the log twice"
    stamps = [info["inCommitTimestamp"] for info in found]
    assert stamps == sorted(set(stamps)), "in-commit timestamps do not rise"
    return table


def leave_unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer publishes in the background."""
    run = background.run

    def others(uri: str, kind: background.Kind, work: Any, **options: Any) -> bool:
        return kind is background.PUBLICATION or run(uri, kind, work, **options)

    monkeypatch.setattr(background, "run", others)


class Killed(BaseException):
    """The process ends here."""


class Watched:
    """A ratifier around another one, with other proposals or notes of publication."""

    def __init__(self, inner: Ratifier, propose: Proposal | None, published: Callable[[Ratifier, int], None] | None):
        self.inner, self._propose, self._published = inner, propose, published

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def propose(self, commit: RatifiedCommit) -> Any:
        return self._propose(self.inner, commit) if self._propose else self.inner.propose(commit)

    def published(self, version: int) -> None:
        if self._published:
            self._published(self.inner, version)
        else:
            self.inner.published(version)


def watch(
    table: DeltaTable, propose: Proposal | None = None, published: Callable[[Ratifier, int], None] | None = None
) -> None:
    """Have the proposals of this handle, or its notes of publication, go another way."""
    log = log_of(table)
    log.ratifier = Watched(log.ratifier, propose, published)


def in_turn(*steps: Proposal) -> Proposal:
    """The first proposals go these ways, the others as always."""
    left = list(steps)

    def step(inner: Ratifier, commit: RatifiedCommit) -> Any:
        return (left.pop(0) if left else honest)(inner, commit)

    return step


def honest(inner: Ratifier, commit: RatifiedCommit) -> Any:
    return inner.propose(commit)


def lost_request(inner: Ratifier, commit: RatifiedCommit) -> Any:
    return Unknown()


def lost_reply(inner: Ratifier, commit: RatifiedCommit) -> Any:
    inner.propose(commit)
    return Unknown()


def resent(inner: Ratifier, commit: RatifiedCommit) -> Any:
    """The client library sends it again, since the first reply was lost."""
    inner.propose(commit)
    return inner.propose(commit)


def late(*, before: bool) -> tuple[Proposal, Proposal]:
    """A request that arrives when the writer proposes again: just before the second request, or just after it."""
    sent: list[RatifiedCommit] = []

    def first(inner: Ratifier, commit: RatifiedCommit) -> Any:
        sent.append(commit)
        return Unknown()

    def second(inner: Ratifier, commit: RatifiedCommit) -> Any:
        if before:
            inner.propose(sent[0])
        outcome = inner.propose(commit)
        if not before:
            inner.propose(sent[0])
        return outcome

    return first, second


LOST: dict[str, Callable[[], tuple[Proposal, ...]]] = {
    "the request": lambda: (lost_request,),
    "the reply": lambda: (lost_reply,),
    "the reply, and it was sent again": lambda: (resent,),
    "two requests": lambda: (lost_request, lost_request),
    "the request, then the reply": lambda: (lost_request, lost_reply),
    "late, before the next": lambda: late(before=True),
    "late, after the next": lambda: late(before=False),
}


def killed(inner: Ratifier, commit: RatifiedCommit) -> Any:
    raise Killed


def ratified_and_killed(inner: Ratifier, commit: RatifiedCommit) -> Any:
    inner.propose(commit)
    raise Killed


class InOrder(WrapperStore):
    """A store that sees each commit that is published, and ends its process at one of these puts.

    Attributes:
        dies_at: the version at whose put the process ends; None for no end.
        after: whether the put was carried out.
    """

    def __init__(self, inner: Any, dies_at: int | None = None, *, after: bool = False) -> None:
        super().__init__(inner)
        self.dies_at, self.after = dies_at, after

    def put_if_absent(self, key: str, data: bytes) -> Any:
        version = managed_log._version(key)
        if version:
            self.inner.head(commit_key(version - 1))  # or it is not there: versions are published in order
        if version is not None and version == self.dies_at and not self.after:
            raise Killed
        outcome = self.inner.put_if_absent(key, data)
        if version is not None and version == self.dies_at:
            raise Killed
        return outcome


class CatalogContract:
    """The behaviour of every catalog of catalog-managed tables.

    Attributes:
        commits: how its tables are created: with commits that are staged, or held by the catalog.
        racers: how many race for one version, or for one name.
        backlog: the most commits that a writer leaves unpublished here, while nothing is published in the background.
    """

    commits: ClassVar[Any] = "staged"
    racers: ClassVar[int] = 50
    backlog: ClassVar[int] = 5

    @pytest.fixture(autouse=True)
    def _settled(self, catalog: Catalog) -> Any:
        yield
        background.settle()

    @pytest.fixture
    def unpublished(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No writer publishes in the background."""
        leave_unpublished(monkeypatch)

    @pytest.fixture
    def table(self, catalog: Catalog) -> DeltaTable:
        return self.create(catalog)

    def create(self, catalog: Catalog, name: str = NAME, **options: Any) -> DeltaTable:
        # Checkpoints publish, which is not to happen by the way.
        options.setdefault("configuration", {"delta.checkpointInterval": "1000"})
        return catalog.create_table(name, SCHEMA, commits=self.commits, **options)

    # --- ratification ---

    def test_a_version_is_ratified_once(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        start = threading.Barrier(self.racers, timeout=120)

        def propose(number: int) -> list[Any]:
            own = log_of(catalog.table(NAME))
            outcomes = []
            for version in (1, 2):
                start.wait()
                outcomes.append(own.propose(version, raw(f"{version} of {number}")))
            return outcomes

        with concurrent.futures.ThreadPoolExecutor(self.racers) as pool:
            replies = [*pool.map(propose, range(self.racers))]
        seen = log_of(reopen().table(NAME))
        for version in (1, 2):
            outcomes = [one[version - 1] for one in replies]
            (winner,) = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
            assert all(isinstance(one, Exists) for at, one in enumerate(outcomes) if at != winner)
            assert seen.get(commit_key(version)) == raw(f"{version} of {winner}")
            for one in outcomes:
                for commit in getattr(one, "winners", ())[:1]:
                    assert commit.version == version, "the winners begin with the version that was proposed"
                    assert seen.content(commit) == raw(f"{version} of {winner}")
        assert seen.ask().latest == 2

    def test_no_version_is_left_out(self, table: DeltaTable) -> None:
        log = log_of(table)
        for wrong in (2, 3, 100):
            try:
                outcome = log.propose(wrong, raw("too early"))
            except StorageError:
                continue
            assert not isinstance(outcome, Committed), f"version {wrong} was ratified after version 0"
        assert log.ask().latest == 0
        assert isinstance(log.propose(1, raw("next")), Committed)
        assert isinstance(log.propose(1, raw("again")), Exists)
        assert log.ask().latest == 1
        assert log.get(commit_key(1)) == raw("next")

    def test_writers_at_once(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        def write(number: int) -> dict[int, int]:
            own = catalog.table(NAME)
            return {append(own, 10 * number + i).version: 10 * number + i for i in range(5)}

        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            done = {version: row for found in pool.map(write, range(10)) for version, row in found.items()}
        assert sorted(done) == [*range(1, 51)]
        seen = check_log(reopen())
        assert ids(seen) == sorted(done.values())
        background.settle()
        catalog.publish(NAME)
        seen = check_log(reopen())
        assert ids(seen) == sorted(done.values())
        for version in (1, 25, 50):
            new = sorted(row for at, row in done.items() if at <= version)
            assert ids(reopen().table(NAME, version=version)) == new

    @pytest.mark.sample(check=5, test=5)
    @pytest.mark.parametrize("loses", [False, True], ids=["alone", "after another writer"])
    @pytest.mark.parametrize("lost", LOST)
    def test_a_lost_reply_is_settled(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable, lost: str, loses: bool
    ) -> None:
        append(table, 1)
        if loses:
            append(catalog.table(NAME), 2)
        watch(table, in_turn(*LOST[lost]()))
        version = append(table, 3).version
        assert version == 2 + loses
        seen = check_log(reopen())
        assert (seen.version(), ids(seen)) == (version, [1, 2, 3] if loses else [1, 3])
        # The next commit, and its winner, go on from there.
        append(table, 4)
        assert ids(check_log(reopen())) == sorted({1, 3, 4} | ({2} if loses else set()))

    def test_a_lost_reply_after_which_another_writer_goes_on(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable
    ) -> None:
        def ratified_and_passed(inner: Ratifier, commit: RatifiedCommit) -> Any:
            inner.propose(commit)
            for row in (2, 3):
                append(catalog.table(NAME), row)
            return Unknown()

        watch(table, in_turn(ratified_and_passed))
        assert append(table, 1).version == 1
        assert ids(check_log(reopen())) == [1, 2, 3]
        append(table, 4)
        assert ids(check_log(reopen())) == [1, 2, 3, 4]

    @pytest.mark.tier("test")
    def test_an_outcome_that_cannot_be_asked_for_is_said_to_be_unknown(
        self, catalog: Catalog, table: DeltaTable
    ) -> None:
        def dropped(inner: Ratifier, commit: RatifiedCommit) -> Any:
            inner.propose(commit)
            catalog.drop_table(NAME)
            return Unknown()

        watch(table, in_turn(dropped))
        with pytest.raises(errors.CommitOutcomeUnknownError):
            append(table, 1)

    def test_a_catalog_that_refuses_leaves_nothing(self, reopen: Reopen, table: DeltaTable) -> None:
        def fails(inner: Ratifier, commit: RatifiedCommit) -> Any:
            raise StorageError("the catalog is away")

        watch(table, in_turn(fails))
        before = {info.key for info in log_of(table).inner.list() if info.key.endswith(".parquet")}
        with pytest.raises(errors.StoreError, match="the catalog is away"):
            append(table, 1)
        assert {info.key for info in log_of(table).inner.list() if info.key.endswith(".parquet")} == before
        assert ids(check_log(reopen())) == []
        append(table, 2)
        assert ids(check_log(reopen())) == [2]

    def test_timestamps_rise_whatever_the_clocks_say(
        self, reopen: Reopen, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = prepared_commit.now_ms()
        other = reopen().table(NAME)
        for number, (writer, clock) in enumerate(
            [(table, now + 3_600_000), (other, now), (table, now - 86_400_000), (other, now + 3_600_000), (table, 0)]
        ):
            monkeypatch.setattr(prepared_commit, "now_ms", lambda clock=clock: clock)
            append(writer, number)
        seen = check_log(reopen())
        assert ids(seen) == [*range(5)]
        assert [info["inCommitTimestamp"] for info in infos(seen)][1:] == [now + 3_600_000 + i for i in range(5)]

    # --- crashes ---

    @pytest.mark.parametrize("end", [killed, ratified_and_killed], ids=["before", "after"])
    def test_a_writer_that_ends_around_its_proposal(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable, end: Proposal
    ) -> None:
        append(table, 1)
        watch(table, end)
        with pytest.raises(Killed):
            append(table, 2)
        there = [1, 2] if end is ratified_and_killed else [1]
        seen = check_log(reopen())
        assert ids(seen) == there
        append(seen, 3)
        background.settle()
        catalog.publish(NAME)
        assert ids(check_log(reopen())) == [*there, 3]
        assert log_of(seen).unpublished() == ()

    @pytest.mark.tier("test")
    @pytest.mark.usefixtures("unpublished")
    def test_a_publisher_that_ends_half_way(self, reopen: Reopen, table: DeltaTable) -> None:
        rows_there: list[int] = []
        for version in range(1, 4):
            for after in (False, True):
                for _ in range(3):
                    append(table, len(rows_there))
                    rows_there.append(len(rows_there))
                first = table.version() - 2
                dying = log_of(reopen().table(NAME))
                dying.inner = InOrder(dying.inner, first - 1 + version, after=after)
                with pytest.raises(Killed):
                    dying.publish()
                assert ids(check_log(reopen())) == rows_there
                again = log_of(reopen().table(NAME))
                again.inner = InOrder(again.inner)
                assert again.publish() == 4 - version - after
                assert again.unpublished() == ()
                assert ids(check_log(reopen())) == rows_there

    @pytest.mark.usefixtures("unpublished")
    def test_a_publisher_that_ends_before_it_notes(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        for row in range(3):
            append(table, row)

        def ends(inner: Ratifier, version: int) -> None:
            raise Killed

        other = reopen().table(NAME)
        watch(other, published=ends)
        with pytest.raises(Killed):
            log_of(other).publish()
        assert len(log_of(table).unpublished()) == 3
        assert ids(check_log(reopen())) == [0, 1, 2]
        append(table, 3)
        assert catalog.publish(NAME) == 1
        assert log_of(table).unpublished() == ()
        assert ids(check_log(reopen())) == [0, 1, 2, 3]

    def test_a_creation_that_ends_before_it_is_registered(
        self, catalog: Catalog, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ends(entry: Any) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(catalog, "_activate", ends)
            with pytest.raises(Killed):
                self.create(catalog)
        assert reopen().tables() == []
        with pytest.raises(errors.TableNotFoundError):
            reopen().table(NAME)
        catalog.drop_table(NAME, purge=True)
        append(self.create(catalog), 1)
        assert ids(check_log(reopen())) == [1]

    # --- publishing ---

    @pytest.mark.usefixtures("unpublished")
    def test_publishers_at_once(self, reopen: Reopen, table: DeltaTable) -> None:
        for row in range(20):
            append(table, row)
        logs = [log_of(reopen().table(NAME)) for _ in range(4)]
        contents = [log_of(table).get(commit_key(version)) for version in range(1, 21)]
        start = threading.Barrier(len(logs), timeout=120)

        def publish(log: ManagedStore) -> int:
            log.inner = InOrder(log.inner)
            start.wait()
            return log.publish()

        with concurrent.futures.ThreadPoolExecutor(len(logs)) as pool:
            assert sum(pool.map(publish, logs)) == 20, "each version is published by one"
        assert [logs[0].inner.get(commit_key(version)) for version in range(1, 21)] == contents
        assert log_of(table).unpublished() == ()
        assert ids(check_log(reopen())) == [*range(20)]

    @pytest.mark.usefixtures("unpublished")
    def test_a_publisher_that_yields_stops_where_it_meets_another(self, reopen: Reopen, table: DeltaTable) -> None:
        for row in range(8):
            append(table, row)
        other, keys = log_of(reopen().table(NAME)), [commit_key(version) for version in range(1, 9)]
        folder, contents = log_of(table).inner, [log_of(table).get(key) for key in keys]
        for version in (1, 2, 3):  # of one that ended before it noted
            folder.put_if_absent(keys[version - 1], contents[version - 1])

        class Beside(WrapperStore):
            """Another one publishes version 6 first."""

            def put_if_absent(self, key: str, data: bytes) -> Any:
                if key == keys[5]:
                    self.inner.put_if_absent(key, data)
                return self.inner.put_if_absent(key, data)

        other.inner = Beside(other.inner)
        assert other.publish(yields=True) == 2
        assert [commit.version for commit in log_of(table).unpublished()] == [7, 8]
        assert log_of(table).publish() == 2
        assert [folder.get(key) for key in keys] == contents
        assert ids(check_log(reopen())) == [*range(8)]

    @pytest.mark.usefixtures("unpublished")
    def test_checkpoints_and_compactions_are_of_published_versions(self, reopen: Reopen, table: DeltaTable) -> None:
        for row in range(4):
            append(table, row)
        folder = log_of(table).inner
        table.compact_logs(1, 3)
        assert folder.get(commit_key(3)) == table.store.get(commit_key(3))
        append(table, 4)
        table.create_checkpoint()
        assert log_of(table).unpublished() == ()
        assert folder.get(commit_key(5)) == table.store.get(commit_key(5))
        assert ids(check_log(reopen())) == [*range(5)]

    @pytest.mark.usefixtures("unpublished")
    def test_commits_do_not_wait_for_a_store_that_is_slow_to_publish(self, reopen: Reopen, table: DeltaTable) -> None:
        reached, released = threading.Event(), threading.Event()

        class Slow(InOrder):
            def put_if_absent(self, key: str, data: bytes) -> Any:
                reached.set()
                assert released.wait(120)
                return super().put_if_absent(key, data)

        append(table, 0)
        slow = log_of(reopen().table(NAME))
        slow.inner = Slow(slow.inner)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(slow.publish)
            assert reached.wait(120)
            for row in range(1, 6):
                append(table, row)
            assert ids(check_log(reopen())) == [*range(6)]
            released.set()
            publishing.result()
        log_of(table).publish()
        assert log_of(table).unpublished() == ()
        assert ids(check_log(reopen())) == [*range(6)]

    @pytest.mark.tier("test")
    @pytest.mark.usefixtures("unpublished")
    def test_the_backlog_is_bounded(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(managed_log, "BACKLOG", self.backlog)
        kept, left = [table, reopen().table(NAME)], []
        for row in range(4 * self.backlog):
            append(kept[row % 3] if row % 3 < 2 else catalog.table(NAME), row)
            left.append(len(log_of(reopen().table(NAME)).unpublished()))
        assert max(left) == self.backlog, "commits wait until there are so many, and no more"
        assert ids(check_log(reopen())) == [*range(4 * self.backlog)]

    @pytest.mark.usefixtures("unpublished")
    def test_a_version_is_read_before_and_after_it_is_published(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable
    ) -> None:
        for row in range(4):
            append(table, row)
        before = reopen().table(NAME)
        assert ids(before) == [*range(4)]
        assert ids(reopen().table(NAME, version=2)) == [0, 1]
        assert catalog.publish(NAME) == 4
        assert catalog.publish(NAME) == 0
        assert ids(before) == [*range(4)]
        assert ids(reopen().table(NAME, version=2)) == [0, 1]
        append(before, 4)
        append(table, 5)
        assert ids(check_log(reopen())) == [*range(6)]

    def test_a_file_that_was_not_ratified_is_no_version(self, reopen: Reopen, table: DeltaTable) -> None:
        """It is proof that the catalog is behind its log, or was put there by a program that is none of its clients."""
        append(table, 1)
        log_of(table).publish()
        store = log_of(table).inner
        store.put(commit_key(2), store.get(commit_key(1)))
        opened = reopen().table(NAME)
        for use in (opened.version, lambda: ids(opened), lambda: append(opened, 2)):
            with pytest.raises(
                errors.CatalogMismatchError, match=r"is 1 by the catalog, .* up to 2.*refdelta catalog adopt"
            ):
                use()
        with pytest.raises(errors.CatalogMismatchError):
            reopen().table(NAME, version=2)
        store.delete([commit_key(2)])
        append(opened, 2)
        assert ids(check_log(reopen())) == [1, 2]

    def test_a_published_file_that_is_not_the_ratified_commit(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable, unpublished: None
    ) -> None:
        append(table, 1)
        right = log_of(table).get(commit_key(1))
        # Of the same length: sizes are no identity.
        log_of(table).inner.put(commit_key(1), right.replace(b"WRITE", b"MERGE"))
        with pytest.raises(errors.CatalogMismatchError, match="another commit as version 1"):
            ids(reopen().table(NAME))
        with pytest.raises(errors.CatalogMismatchError):
            catalog.publish(NAME)
        assert [one.version for one in log_of(table).ratifier.ratified().commits] == [1], "nothing is forgotten"
        with pytest.raises(errors.CatalogMismatchError):
            append(reopen().table(NAME), 2)
        log_of(table).inner.put(commit_key(1), right)
        assert catalog.publish(NAME) == 0
        assert ids(check_log(reopen())) == [1]

    def test_cleanup_by_another_process(self, catalog: Catalog, reopen: Reopen) -> None:
        """A handle remembers versions; those that another process removed are not shown any more."""
        table = self.create(catalog)
        for row in range(4):
            append(table, row)
        background.settle()
        other = reopen().table(NAME)
        for row in range(4, 8):
            append(other, row)
        background.settle()
        log_of(other).publish()
        other.create_checkpoint()
        log_of(other).delete([commit_key(version) for version in range(6)])
        table.update_incremental()
        assert ids(table) == [*range(8)]
        fresh = [one["version"] for one in reopen().table(NAME).history()]
        assert [one["version"] for one in table.history()] == fresh
        append(table, 8)
        assert ids(reopen().table(NAME)) == [*range(9)]

    # --- names ---

    def test_a_name_is_taken_once(self, catalog: Catalog, reopen: Reopen) -> None:
        start = threading.Barrier(self.racers, timeout=120)

        def create(number: int) -> bool:
            start.wait()
            try:
                self.create(catalog)
            except errors.TableAlreadyExistsError:
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(self.racers) as pool:
            assert sum(pool.map(create, range(self.racers))) == 1
        assert reopen().tables() == [NAME]
        assert ids(check_log(reopen())) == []

    @pytest.mark.tier("test")
    def test_names_that_differ_in_case_are_one(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        append(table, 1)
        other = NAME.upper()
        assert ids(reopen().table(other)) == [1]
        with pytest.raises(errors.TableAlreadyExistsError):
            self.create(reopen(), other)
        second = self.create(catalog, "sales.lines")
        with pytest.raises(errors.TableAlreadyExistsError):
            catalog.rename_table("sales.lines", "sales.Orders")
        catalog.rename_table("sales.lines", "sales.Lines")
        assert catalog.tables() == ["sales.Lines", NAME]
        assert ids(second) == []
        catalog.drop_table("SALES.LINES")
        assert catalog.tables() == [NAME]

    @pytest.mark.tier("test")
    def test_of_creators_in_different_cases_one_has_the_name(self, reopen: Reopen) -> None:
        start = threading.Barrier(8, timeout=120)

        def create(number: int) -> bool:
            catalog = reopen()
            start.wait()
            try:
                self.create(catalog, f"sales.{'orders' if number % 2 else 'Orders'}")
            except errors.TableAlreadyExistsError:
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 1
        assert len(reopen().tables()) == 1

    def test_a_table_is_replaced_by_one_version(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        append(table, 1, 2)
        held = reopen().table(NAME)
        schema = pa.schema({"id": pa.int64(), "town": pa.string()})
        new = pa.table({"id": [5], "town": ["Ulm"]}, schema)
        made = catalog.create_table(
            NAME, schema, mode="overwrite", rows=new, configuration={"delta.appendOnly": "false"}
        )
        assert made.version() == 2
        found = reopen().table(NAME)
        assert found.to_pyarrow_table() == new
        assert ids(reopen().table(NAME, 1)) == [1, 2]
        append(found, 6)
        assert ids(check_log(reopen())) == [5, 6]
        held.update_incremental()
        assert ids(held) == [5, 6]
        assert catalog.create_table(NAME, SCHEMA, mode="ignore").version() == 3
        with pytest.raises(errors.InvalidArgumentError, match="location"):
            catalog.create_table(NAME, schema, "memory://elsewhere", mode="overwrite")

    def test_a_table_is_created_with_its_rows(self, catalog: Catalog, reopen: Reopen) -> None:
        self.create(catalog, mode="overwrite", rows=rows(1, 2))
        found = reopen().table(NAME)
        assert (found.version(), ids(found)) == (0, [1, 2])

    def test_a_replacement_conflicts_with_a_commit_beside_it(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable
    ) -> None:
        append(table, 1)

        def beside() -> Any:
            append(reopen().table(NAME), 2)
            yield from rows(7).to_batches()

        new = pa.RecordBatchReader.from_batches(SCHEMA, beside())
        with pytest.raises(errors.ConcurrentModificationError):
            catalog.create_table(NAME, SCHEMA, mode="overwrite", rows=new)
        assert ids(check_log(reopen())) == [1, 2]

    def test_a_creation_whose_rows_fail_leaves_the_name(self, catalog: Catalog, reopen: Reopen) -> None:
        def failing() -> Any:
            yield from rows(7).to_batches()
            raise errors.ExpressionError("no value")

        for mode in ("error", "overwrite"):
            new = pa.RecordBatchReader.from_batches(SCHEMA, failing())
            with pytest.raises(errors.ExpressionError):
                catalog.create_table(NAME, SCHEMA, mode=mode, rows=new)
            assert reopen().tables() == []
        self.create(catalog, rows=rows(1))
        assert ids(reopen().table(NAME)) == [1]

    def test_an_open_handle_outlives_a_new_name(self, catalog: Catalog, reopen: Reopen, table: DeltaTable) -> None:
        append(table, 1)
        begun = table.begin()
        begun.append(rows(2))
        catalog.rename_table(NAME, "archive.orders")
        begun.commit()
        append(table, 3)
        assert ids(check_log(reopen(), "archive.orders")) == [1, 2, 3]
        with pytest.raises(errors.TableNotFoundError):
            reopen().table(NAME)
        # The old name is free, and the handle is not of the table that takes it.
        append(self.create(catalog), 10)
        append(table, 4)
        assert ids(check_log(reopen())) == [10]
        assert ids(check_log(reopen(), "archive.orders")) == [1, 2, 3, 4]

    def test_a_handle_of_a_dropped_table_commits_nothing(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable
    ) -> None:
        append(table, 1)
        begun = table.begin()
        begun.append(rows(2))
        catalog.drop_table(NAME)
        for commit in (begun.commit, lambda: append(table, 3), lambda: table.delete("id = 1")):
            with pytest.raises(errors.StoreError, match="orders any more"):
                commit()
        assert reopen().tables() == []

    @pytest.mark.parametrize("purge", [False, True])
    def test_a_handle_of_a_table_that_was_created_again(self, catalog: Catalog, reopen: Reopen, purge: bool) -> None:
        old = self.create(catalog)
        append(old, 1)
        begun = old.begin()
        begun.append(rows(2))
        background.settle()
        catalog.drop_table(NAME, purge=purge)
        new = self.create(catalog, location=old.table_uri) if purge else self.create(catalog)
        append(new, 10)
        for commit in (begun.commit, lambda: append(old, 3)):
            with pytest.raises(errors.StoreError):
                commit()
        assert ids(check_log(reopen())) == [10]
        append(new, 11)
        assert ids(check_log(reopen())) == [10, 11]

    def test_a_table_that_is_dropped_between_staging_and_proposal(
        self, catalog: Catalog, reopen: Reopen, table: DeltaTable
    ) -> None:
        def dropped_first(inner: Ratifier, commit: RatifiedCommit) -> Any:
            catalog.drop_table(NAME)
            self.create(catalog)
            return inner.propose(commit)

        watch(table, in_turn(dropped_first))
        with pytest.raises(errors.StoreError):
            append(table, 1)
        assert ids(check_log(reopen())) == []

    @pytest.mark.usefixtures("unpublished")
    def test_what_was_committed_is_in_the_folder_of_a_dropped_table(self, catalog: Catalog, table: DeltaTable) -> None:
        for row in range(3):
            append(table, row)
        contents = [log_of(table).get(commit_key(version)) for version in range(4)]
        folder = log_of(table).inner
        catalog.drop_table(NAME)
        assert [folder.get(commit_key(version)) for version in range(4)] == contents
