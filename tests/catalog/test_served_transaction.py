"""Transactions over several tables through ``refdelta serve``: the semantics and the errors of a SqlCatalog, by one
request that ratifies all parts.

Tests of catalog.service_together, catalog.together_api, catalog.unity_together.
"""

import json

import pyarrow as pa
import pytest

from catalog import test_transaction as direct
from catalog.contract import log_of
from catalog.serving import TOKEN, Proxy, serving
from catalog.test_transaction import (  # noqa: F401 - the same tests, for the catalog of this module
    START,
    content,
    create,
    files,
    group_of,
    rows,
    state,
    test_a_block_of_sql_is_one_transaction,
    test_a_block_that_raises_leaves_nothing,
    test_a_conflict_in_one_table_is_one_of_all_and_names_it,
    test_a_snapshot_is_of_one_moment_and_read_only,
    test_a_transaction_sees_all_tables_at_the_moment_at_which_it_began,
    test_a_transaction_that_creates_tables_only,
    test_every_statement_of_rows_and_new_tables,
    test_many_threads_move_money_and_the_sum_stays,
    test_no_append_is_skipped_under_the_reads_of_a_transaction_over_several_tables,
    test_nothing_is_committed_where_nothing_was_written,
    test_one_table_alone_commits_as_any_transaction,
    test_rows_from_another_table_of_the_transaction_are_reads_of_it,
    test_rows_of_each_table_decide,
    test_the_reads_of_a_serializable_table_are_pinned_and_leave_no_version,
    test_timeline_and_why_name_the_tables_of_a_transaction,
    test_transact_repeats_after_a_conflict,
    test_write_skew_over_two_tables_is_refused,
    transfer,
)
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, unity_http
from refdelta.catalog.together_api import RATIFICATIONS, VERSIONS
from refdelta.core.commit.together import GROUP
from refdelta.transaction import background

pytestmark = pytest.mark.tier("test")
SCHEMA = direct.SCHEMA


class Short(UnityCatalog):
    """A catalog whose tables are named by their last part, as in the tests of a SqlCatalog; all in one schema."""

    commits = "staged"
    schema = "main.s"

    def full(self, name):
        return f"{self.schema}.{name}" if isinstance(name, str) and name.isidentifier() else name

    def tables(self, namespace=None):
        return [name.rpartition(".")[2] for name in super().tables(self.schema)]

    def drop_table(self, name, *, purge=False):
        super().drop_table(self.full(name), purge=purge)

    def _entry(self, name, *, staging=False):
        return super()._entry(self.full(name), staging=staging)

    def _reserve(self, name, location, commits):
        return super()._reserve(self.full(name), location, commits)

    def _latest_of_all(self, what):
        found = super()._latest_of_all(what)
        return {name.rpartition(".")[2]: one for name, one in found.items() if name.rpartition(".")[0] == self.schema}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served"), "--max-unpublished", "5") as served:
        yield served


@pytest.fixture
def reopen(served, request):
    opened = []

    def another(url=served.url):
        opened.append(Short(url, TOKEN))
        opened[-1].schema = "main." + "".join(one if one.isalnum() else "_" for one in request.node.name)
        return opened[-1]

    yield another
    background.settle()
    for one in opened:
        one.close()


@pytest.fixture
def catalog(reopen):
    found = reopen()
    for name in ("a", "b"):
        create(found, name)
    return found


@pytest.fixture
def tmp_path(served):
    """Where the files of the tables are."""
    return served.folder


@pytest.fixture
def through(served, monkeypatch, reopen):
    """Open the catalog through a proxy with a plan. Pauses take no time."""
    monkeypatch.setattr(unity_http.time, "sleep", lambda _: None)
    proxies = []

    def open_through(plan):
        proxies.append(Proxy(served.url, plan).__enter__())
        return reopen(proxies[-1].url)

    yield open_through
    background.settle()
    for one in proxies:
        one.__exit__()


def ratifying(*faults):
    """A plan with these faults for the first requests that ratify several tables."""
    left = [*faults]

    def plan(method, path, _body):
        return left.pop(0) if method == "POST" and path.endswith(RATIFICATIONS) and left else None

    return plan


@pytest.mark.tier("check")
def test_a_transfer_is_one_request_that_ratifies_both_tables(catalog, through):
    seen = []

    def plan(method, path, body):
        if method == "POST" and b"commit" in body and "backfilled" not in body.decode():
            seen.append((path.partition("unity-catalog")[2], json.loads(body)))

    with through(plan).transaction() as tx:
        transfer(tx)
        assert state(catalog) == START
    assert state(catalog) == {"a": (2, {1: 90, 2: 100}), "b": (2, {1: 110, 2: 100})}
    ((path, body),) = seen
    assert path == RATIFICATIONS
    assert [(one["before"], one["commit"]["version"]) for one in body["parts"]] == [(1, 2), (1, 2)]
    groups = [group_of(catalog.table(name)) for name in ("a", "b")]
    assert groups[0] == groups[1]
    assert groups[0]["transactionId"] == tx.transaction_id
    assert [one["tableId"] for one in groups[0]["participants"]] == [one["table-id"] for one in body["parts"]]


FAULTS = {
    "the reply": ["lose-reply"],
    "the request": ["lose-request"],
    "the request and then the reply": ["lose-request", "lose-reply"],
    "nothing, but it is sent twice": ["twice"],
    "all replies": ["lose-reply"] * 6,
    "all requests of a try": ["lose-request"] * 6,
}


@pytest.mark.parametrize("lost", FAULTS)
@pytest.mark.parametrize("after_another", [False, True], ids=["alone", "after another writer"])
def test_what_is_lost_is_settled_by_ids(catalog, through, lost, after_another):
    tx = through(ratifying(*FAULTS[lost])).transaction()
    transfer(tx)
    tx.create_table("c", SCHEMA).append(rows(_1=1))
    tx.create_table("d", SCHEMA)
    if after_another:
        write_deltalake(catalog.table("b"), rows(_7=7), mode="append")
    assert {name: one.version for name, one in tx.commit().items()} == {"a": 2, "b": 2 + after_another, "c": 1, "d": 0}
    more = {7: 7} if after_another else {}
    assert state(catalog) == {
        "a": (2, {1: 90, 2: 100}),
        "b": (2 + after_another, {1: 110, 2: 100, **more}),
        "c": (1, {1: 1}),
        "d": (0, {}),
    }


def test_tables_that_are_only_created_and_a_lost_reply(catalog, through):
    with through(ratifying("lose-reply")).transaction() as tx:
        for name in ("c", "d"):
            tx.create_table(name, SCHEMA)
    assert catalog.tables() == ["a", "b", "c", "d"]
    tx = through(ratifying(*["lose-request"] * 6)).transaction()
    for name in ("e", "f"):
        tx.create_table(name, SCHEMA)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        tx.commit()


def test_a_request_that_arrives_late_before_another_try_is_found(catalog, through, served):
    """All requests of the first try are lost, and one of them arrives before the second try, whose files are others."""
    bodies = []

    def plan(method, path, body):
        if method != "POST" or not path.endswith(RATIFICATIONS):
            return None
        bodies.append(body)
        if bodies[0] == body:
            return "lose-request"
        if bodies.count(body) == 1:
            assert served.request("POST", RATIFICATIONS, bodies[0])[0] == 200
        return None

    tx = through(plan).transaction()
    tx["a"].append(rows(_3=3))
    tx.create_table("c", SCHEMA).append(rows(_1=1))
    tx.create_table("d", SCHEMA)
    assert {name: one.version for name, one in tx.commit().items()} == {"a": 2, "c": 1, "d": 0}
    assert len({*bodies}) == 2
    assert state(catalog) == {**START, "a": (2, {1: 100, 2: 100, 3: 3}), "c": (1, {1: 1}), "d": (0, {})}


def test_an_outcome_that_nobody_knows_keeps_the_files(catalog, through, tmp_path):
    lost = []

    def plan(method, path, _body):
        if method == "POST" and path.endswith(RATIFICATIONS):
            lost.append(path)
        return "lose-request" if lost else None

    tx = through(plan).transaction()
    transfer(tx)
    before = files(tmp_path)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        tx.commit()
    assert (files(tmp_path), state(catalog)) == (before, START)


def test_a_name_that_was_taken_meanwhile_fails_the_whole(catalog, reopen, tmp_path):
    before = files(tmp_path)
    tx = catalog.transaction()
    tx["a"].append(rows(_4=4))
    tx.create_table("c", SCHEMA).append(rows(_1=1))
    reopen().create_table("c", SCHEMA)
    with pytest.raises(errors.TableAlreadyExistsError, match=r"\.c"):
        tx.commit()
    assert (state(catalog), files(tmp_path)) == ({**START, "c": (0, {})}, before)


def test_a_dropped_table_fails_the_whole(catalog, tmp_path):
    tx = catalog.transaction()
    transfer(tx)
    catalog.drop_table("b")
    with pytest.raises(errors.StoreError, match=r"no table main\S+\.b of the catalog"):
        tx.commit()
    assert content(catalog.table("a")) == START["a"][1]


def test_misuse_has_the_errors_of_a_sql_catalog(catalog, served, tmp_path):
    refused = errors.InvalidArgumentError
    with SqlCatalog(served.database, warehouse=tmp_path / "warehouse") as database:
        database.create_table(catalog.full("held"), SCHEMA, commits="inline")
        write_deltalake(tmp_path / "warehouse" / catalog.schema, rows(_1=1))
        database.register_table(catalog.full("plain"), tmp_path / "warehouse" / catalog.schema)
    assert [*catalog.snapshot()] == ["a", "b"]
    tx = catalog.transaction()
    for name, told in (("plain", "plain is a table of the file system"), ("held", "commits of held inline")):
        with pytest.raises(refused, match=told):
            tx[name]
        with pytest.raises(refused, match=told):
            catalog.snapshot([name])
    with pytest.raises(errors.TableNotFoundError, match="does not exist"):
        tx["aa"]
    with pytest.raises(refused, match="named as in its catalog"):
        tx[catalog.table("a")]
    with pytest.raises(errors.TableAlreadyExistsError):
        tx.create_table("a", SCHEMA)
    transfer(tx)
    tx.commit()
    with pytest.raises(refused, match="committed already"):
        tx.commit()


def test_writers_through_the_server_and_in_its_database_share_tables(catalog, served):
    full = [catalog.full(name) for name in ("a", "b")]
    with SqlCatalog(served.database, warehouse=served.folder / "warehouse") as database:
        first, second = catalog.transaction(), database.transaction()
        transfer(first)
        second[full[0]].update({"amount": "amount - 10"}, predicate="id = 1")
        second[full[1]].update({"amount": "amount + 10"}, predicate="id = 1")
        second.commit()
        with pytest.raises(errors.ConcurrentModificationError) as caught:
            first.commit()
        assert caught.value.conflict.table in ("a", "b")
        catalog.transact(transfer)
        found = database.snapshot(full)
    assert [content(one) for one in found.values()] == [{1: 80, 2: 100}, {1: 120, 2: 100}]
    assert group_of(catalog.table("a"))["transactionId"]


def test_a_backlog_is_published_before_the_server_ratifies_more(catalog, monkeypatch):
    monkeypatch.setattr(background, "run", lambda *_, **__: True)
    for _ in range(8):
        with catalog.transaction() as tx:
            tx["a"].append(rows(_3=1))
            tx["b"].append(rows(_3=1))
    assert [one.version() for one in catalog.snapshot().values()] == [9, 9]


def test_a_table_that_changes_its_columns_in_a_transaction(catalog):
    with catalog.transaction() as tx:
        tx["a"].add_columns(pa.schema({"note": pa.string()}))
        tx["b"].append(rows(_3=1))
    assert catalog.table("a").schema().to_arrow().names == ["id", "amount", "note"]


def part_of(catalog, name, before, **changes):
    commit = {
        "version": before + 1,
        "timestamp": 1,
        "file-name": f"{before + 1:020d}.00000000-0000-0000-0000-000000000000.json",
        "file-size": 10,
        "file-modification-timestamp": 1,
    }
    return {"table-id": catalog._entry(name).table_id, "before": before, "commit": {**commit, **changes}}


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        (lambda parts: [], 400, "length"),
        (lambda parts: [parts[0], parts[0]], 400, "twice"),
        (lambda parts: [{**parts[0], "table-id": "0" * 36}], 404, "there is no table"),
        (lambda parts: [{**parts[0], "table-id": "0" * 36, "creates": "main.s.x"}], 404, "no staging table"),
        (lambda parts: [{**parts[0], "creates": "main.s.x"}], 400, "no staged file"),
        (lambda parts: [parts[0], {**parts[1], "before": 7}], 400, "does not follow"),
        (lambda parts: [{"table-id": parts[0]["table-id"], "before": 7}], 400, "the latest version is 1, not 7"),
        (lambda parts: parts, 400, "no staged file"),
        (lambda parts: [{**parts[0], "commit": {**parts[0]["commit"], "file-size": 2**40}}], 400, "too many bytes"),
    ],
)
def test_requests_that_no_client_sends(catalog, served, change, status, told):
    parts = [part_of(catalog, name, 1) for name in ("a", "b")]
    found, _, body = served.request("POST", RATIFICATIONS, {"parts": change(parts)})
    assert (found, told in body["error"]["message"]) == (status, True), body
    assert state(catalog) == START


def test_all_or_nothing_also_where_one_staged_file_is_wrong(catalog, served):
    staged = log_of(catalog.table("a")).proposal(2, good(catalog, "a"))
    right = part_of(catalog, "a", 1, **{
        "file-name": staged.file_name, "file-size": staged.size, "timestamp": staged.timestamp_ms
    })  # fmt: skip
    status, _, _ = served.request("POST", RATIFICATIONS, {"parts": [right, part_of(catalog, "b", 1)]})
    assert (status, state(catalog)) == (400, START)
    other = log_of(catalog.table("b")).proposal(2, good(catalog, "b"))
    both = [right, part_of(catalog, "b", 1, **{
        "file-name": other.file_name, "file-size": other.size, "timestamp": other.timestamp_ms
    })]  # fmt: skip
    for _ in range(2):
        assert served.request("POST", RATIFICATIONS, {"parts": both})[2] == {"parts": [{"outcome": "committed"}] * 2}
    late = [both[0], {"table-id": both[1]["table-id"], "before": 2}]
    assert served.request("POST", RATIFICATIONS, {"parts": late})[0] == 200
    # Another transaction that contains a part of this one was never sent.
    wrong = [both[0], part_of(catalog, "b", 2)]
    assert "by another request" in served.request("POST", RATIFICATIONS, {"parts": wrong})[2]["error"]["message"]


def good(catalog, name):
    """The content of a commit without files that may follow."""
    from refdelta.core.log.actions import CommitInfo
    from refdelta.core.log.codec import encode_commit

    after = catalog.table(name).history(1)[0]["inCommitTimestamp"] + 1
    return encode_commit([CommitInfo({"inCommitTimestamp": after, "operation": "WRITE", "txnId": "0"})])


def test_a_server_without_these_requests_is_refused_by_name(through):
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    catalog = through(lambda _method, path, _body: missing if path.endswith(VERSIONS) else None)
    for call in (catalog.transaction, catalog.snapshot, lambda: catalog.transact(lambda tx: None)):
        with pytest.raises(errors.InvalidArgumentError, match="as Unity Catalog's interface has none"):
            call()


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize(
    "outcomes",
    [
        [],
        ["committed"],
        ["committed", "untried"],
        ["untried", "untried"],
        [("exists", 1), "untried"],
        [("exists", 3, 5), "untried"],
    ],
    ids=str,
)
def test_a_reply_that_no_server_gives_leaves_the_outcome_open(catalog, through, outcomes):
    def part(outcome):
        kind, *versions = (outcome,) if isinstance(outcome, str) else outcome
        return {"outcome": kind, "commits": [part_of(catalog, "a", one - 1)["commit"] for one in versions]}

    body = json.dumps({"parts": [*map(part, outcomes)]}).encode()
    reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    tx = through(ratifying(*[reply] * 100)).transaction()
    transfer(tx)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        tx.commit()
    assert state(catalog) == START


def test_the_log_names_the_group_after_publication(catalog):
    with catalog.transaction() as tx:
        transfer(tx)
    catalog.publish(catalog.full("a"))
    assert catalog.table("a").history(1)[0][GROUP]["transactionId"] == tx.transaction_id
    assert log_of(catalog.table("a")).unpublished() == ()
